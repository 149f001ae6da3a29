import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { decode, encode } from "dns-packet";
import type { Ip } from "../../core/address.ts";
import { Forwarder } from "../../daemon/dns/forward.ts";
import { readQuery } from "../../daemon/dns/query.ts";
import { run } from "../../linux/processes/command.ts";

const address = "127.0.0.77" as Ip;
let server: ChildProcess;
let heard = "";

test.before(async () => {
  await run(["ip", "link", "set", "lo", "up"]);
  const program = join(import.meta.dirname, "../lab/name-server.ts");
  server = spawn(process.execPath, [program, address]);
  server.stdout?.on("data", (text: Buffer) => {
    heard += text.toString();
  });
  await once(server, "spawn");
  for (let nth = 0; nth < 200; nth++) {
    const { stdout } = await run(["ss", "-Hltn", "sport = :53"]);
    if (stdout.includes(":53")) return;
  }
  throw new Error("No name server");
});
test.after.always(() => {
  server.kill("SIGKILL");
});

/** What comes of a question by UDP that is handed on, of a guest that takes so much. */
async function asked(name: string, udpPayloadSize?: number) {
  const options = { extendedRcode: 0, ednsVersion: 0, flags: 0, flag_do: false, options: [] };
  const read = readQuery(
    encode({
      type: "query",
      id: 7,
      questions: [{ name, type: "TXT" }],
      additionals:
        udpPayloadSize === undefined
          ? []
          : [{ type: "OPT", name: ".", udpPayloadSize, ...options }],
    }),
  );
  if (read.kind !== "query") throw new Error(read.kind);
  const answer = await new Forwarder().forward(read.query, "udp", [address]);
  const { flag_tc: short, answers = [], id } = decode(Buffer.from(answer ?? []));
  return { short, records: answers.length, id };
}

test.serial("what a server cuts short is had whole by TCP, for who has room for it", async (t) => {
  t.deepEqual(await asked("long.example", 4096), { short: false, records: 5, id: 7 });
  t.deepEqual(await asked("long.example"), { short: true, records: 0, id: 7 });
  t.deepEqual(await asked("who.example", 4096), { short: false, records: 1, id: 7 });
  // What it writes comes in order, and a moment after what it answers.
  for (let nth = 0; nth < 500 && !heard.includes("who.example"); nth++) await delay(10);
  const names = [...heard.matchAll(/asks (\S+)/g)].map(([, name]) => name);
  t.deepEqual(
    names,
    ["long.example", "long.example", "long.example", "who.example"],
    "by UDP, by TCP; by UDP alone; once",
  );
});
