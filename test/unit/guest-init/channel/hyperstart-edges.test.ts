import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { parseCidr, parseIp, parseIpPrefix, parseUnicastMac } from "../../../../core/address.ts";
import type { PodnetError } from "../../../../core/errors.ts";
import type { ExecSession } from "../../../../guest-init/channel/guest.ts";
import type { ChannelLimits } from "../../../../guest-init/channel/limits.ts";
import { openGuest } from "../../../../guest-init/channel/session.ts";
import type { GuestConfig } from "../../../../guest-init/protocol/configure.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import { encodeCtlFrame } from "../../../../guest-init/protocol/ctl-frame.ts";
import { encodeHelloRequest } from "../../../../guest-init/protocol/extension-messages.ts";
import { type HyperstartOptions, startHyperstartPeer } from "../../../peers/hyperstart.ts";

// Races, leftovers of an earlier daemon, and awkward orders, against the stand-in for hyperstart.

const never = new AbortController().signal;
const macs = ["52:54:00:00:00:07", "52:54:00:00:00:08"] as const;

/** `before` speaks on the control channel, as an earlier daemon did. */
async function met(
  t: ExecutionContext,
  options: Partial<HyperstartOptions> = {},
  before = "",
  limits: Partial<ChannelLimits> = {},
) {
  const folder = await mkdtemp(join(tmpdir(), "podnet-edges-"));
  const [channelPath, ttyPath] = [join(folder, "hyper.sock"), join(folder, "tty.sock")];
  const links = [{ name: "eth0", mac: macs[0] }];
  const peer = await startHyperstartPeer({ controlPath: channelPath, ttyPath, links, ...options });
  if (before !== "") {
    const earlier = connect(channelPath);
    await once(earlier, "data");
    earlier.end(Buffer.from(before, "hex"));
    await once(earlier, "close");
  }
  const guest = openGuest({ channelPath, ttyPath, reattach: before !== "", limits });
  t.teardown(async () => {
    await guest.close();
    await peer.close();
    await rm(folder, { recursive: true });
  });
  return { peer, guest };
}

async function outcome(session: ExecSession): Promise<[string, number]> {
  let text = "";
  for await (const event of session.events) {
    if (event.kind === "exit") return [text, event.code];
    text += Buffer.from(event.data).toString();
  }
  return [text, -1];
}

const terminal = { env: {}, workdir: "/", terminal: true, rows: 24, columns: 80 };

test("a process on a terminal may end before its size is set", async (t) => {
  const { guest } = await met(t);
  t.deepEqual(await outcome(await guest.exec({ ...terminal, args: ["echo", "hi"] }, never)), [
    "hi\r\n",
    0,
  ]);
});

const base: GuestConfig = {
  requestId: "r",
  interfaces: [],
  routes: [],
  neighbours: [],
  waitMs: 500,
};

const one = (name: string, address: string) => ({
  mac: parseUnicastMac(macs[0]),
  name,
  addresses: [parseIpPrefix(address)],
});

test("a gateway that a later route brings within reach", async (t) => {
  const { guest } = await met(t);
  const routes = [
    { destination: parseCidr("0.0.0.0/0"), gateway: parseIp("169.254.1.1"), interface: "eth0" },
    { destination: parseCidr("169.254.1.1/32"), interface: "eth0" },
  ];
  const interfaces = [one("eth0", "10.1.0.2/32")];
  const observed = await guest.configure({ ...base, interfaces, routes }, never);
  t.deepEqual(new Set(observed.routes), new Set(routes));
});

test("a name that another card bears is refused, and said to be", async (t) => {
  const links = macs.map((mac, i) => ({ name: `eth${i}`, mac }));
  const { guest } = await met(t, { links });
  const interfaces = [one("eth1", "10.1.0.2/24")];
  await t.throwsAsync(guest.configure({ ...base, interfaces }, never), {
    code: "AGENT_REFUSED",
    message: /eth0 is not named eth1/,
  });
});

test("answers to what an earlier daemon asked are passed over", async (t) => {
  // Two PINGs and a GETVERSION, none of which was read before it went.
  const before = "0000000c000000080000000c000000080000000000000008";
  const { guest, peer } = await met(t, { readMs: 5 }, before);
  t.like(await guest.ready(never), { api: 4244, extension: undefined });
  await guest.ping(never);
  t.deepEqual(
    peer.received.slice(0, 3).map(({ code }) => code),
    [12, 12, 0],
  );
  const observed = await guest.configure(
    { ...base, interfaces: [one("eth0", "10.1.0.2/24")] },
    never,
  );
  t.like(observed.interfaces, [{ name: "eth0", up: true }]);
});

test("answers to an earlier daemon that died while it asked who is there are passed over", async (t) => {
  const request = encodeHelloRequest({ versions: [1], nonce: "earlier" });
  const before = [
    encodeCtlFrame(command.getVersion),
    encodeCtlFrame(command.hello, request),
    encodeCtlFrame(command.getVersion),
  ];
  const { guest } = await met(t, { readMs: 5 }, Buffer.concat(before).toString("hex"));
  t.like(await guest.ready(never), { api: 4244, extension: undefined });
  for (let i = 0; i < 3; i++) await guest.ping(never);
  const interfaces = [one("eth0", "10.1.0.2/24")];
  t.like((await guest.configure({ ...base, interfaces }, never)).interfaces, [{ up: true }]);
});

for (const missing of [3, 8, 100])
  test(`half a command of an earlier daemon, ${missing} bytes short: silence in good time, and the guest lives`, async (t) => {
    const whole = encodeCtlFrame(command.winSize, Buffer.alloc(200, " "));
    const before = Buffer.from(whole.subarray(0, whole.length - missing)).toString("hex");
    const { guest, peer } = await met(t, {}, before, { identifyMs: 200 });
    const error = await t.throwsAsync(guest.ready(never), { code: "AGENT_TIMEOUT" });
    t.regex((error as PodnetError).hint ?? "", /rest of a command/);
    t.is(peer.state.gone, undefined);
    t.is(peer.arrivals.at(-1), 8);
  });
