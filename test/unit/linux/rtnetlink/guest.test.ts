/**
 * The codec in the guest's engine: bundled as the agent is, run in QuickJS, compared with this
 * one's results.
 */
import { readFile } from "node:fs/promises";
import { runInNewContext } from "node:vm";
import test from "ava";
import { build } from "esbuild";
import { QuickJS } from "quickjs-wasi";

const program = `
  import { parseIp, parseIpPrefix, parseMac } from "./core/address.ts";
  import { parseAck, ackError } from "./linux/rtnetlink/ack.ts";
  import { addAddress, parseAddress } from "./linux/rtnetlink/address.ts";
  import { changeLink, getLinks } from "./linux/rtnetlink/links/link-requests.ts";
  import { parseLink } from "./linux/rtnetlink/links/link.ts";
  import { encodeRequest, parseMessages } from "./linux/rtnetlink/message.ts";
  import { replaceNeighbour } from "./linux/rtnetlink/neighbour.ts";
  import { addRoute } from "./linux/rtnetlink/route-requests.ts";
  import { parseRoute } from "./linux/rtnetlink/route.ts";
  const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
  const mac = parseMac("52:54:00:00:00:01");
  const requests = [
    getLinks(),
    changeLink(2, { name: "eth0", mtu: 1400, mac, up: true, alias: "größe" }),
    addAddress(2, parseIpPrefix("fd00::2/64"), { noDad: true }),
    addRoute({ destination: "0.0.0.0/0", gateway: parseIp("192.168.123.1"), link: 2, onlink: true, mtu: 9 }),
    replaceNeighbour({ index: 2, address: parseIp("192.168.123.1"), mac }),
  ];
  const sent = requests.map((request) => encodeRequest(request, 7));
  const payloads = sent.map((bytes) => parseMessages(bytes)[0].payload);
  let error;
  try { parseMessages(new Uint8Array(9)); } catch (thrown) { error = thrown.message; }
  const text = new Uint8Array(8 + 16 + 8);
  text.set([234, 255, 255, 255, 16, 0, 0, 0]);
  text.set([6, 0, 1, 0, 104, 0], 20);
  const ack = parseAck({ type: 2, flags: 0x300, seq: 7, portId: 0, payload: text.subarray(0, 28) });
  globalThis.result = JSON.stringify({
    sent: sent.map(hex),
    link: parseLink(payloads[1]),
    address: parseAddress(payloads[2]),
    route: parseRoute(payloads[3]),
    error,
    refused: ackError("Cannot", ack).message,
  });
`;

test("the same requests, the same readings, the same errors", async (t) => {
  const { outputFiles } = await build({
    stdin: {
      contents: program,
      resolveDir: new URL("../../../..", import.meta.url).pathname,
      loader: "ts",
    },
    bundle: true,
    write: false,
    platform: "neutral",
    target: "es2020",
    format: "iife",
  });
  const code = outputFiles[0]?.text as string;
  const here: { result?: string } = {};
  runInNewContext(code, here);
  const wasm = await readFile(new URL(import.meta.resolve("quickjs-wasi/quickjs.wasm")));
  using vm = await QuickJS.create({ wasm });
  using ran = vm.evalCode(`${code}; globalThis.result`);
  t.is(ran.toString(), here.result as string);
  const result = JSON.parse(here.result as string) as Record<string, unknown>;
  t.like(result, {
    link: { name: "eth0", mtu: 1400, alias: "größe", up: true },
    address: { prefix: "fd00::2/64" },
    route: { destination: "0.0.0.0/0", gateway: "192.168.123.1", onlink: true, mtu: 9 },
    refused: "Cannot: EINVAL (h)",
  });
  t.regex(result["error"] as string, /^Malformed netlink message/);
});
