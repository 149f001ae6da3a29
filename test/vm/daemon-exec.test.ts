import { createCipheriv, createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import test from "ava";
import { execIn, openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await openRig('factory = "cold"\n');
  await rig.client.pods.create({ spec: { name: "one" } });
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** More than twice what podnetd may hold of it, in and out. */
const total = process.env["PODNET_TEST_FULL"] === "1" ? 100_000_000 : 40_000_000;
const chunk = 62_500;

/**
 * Bytes that never repeat, the same each time: a chunk lost, doubled or out of order changes their
 * hash.
 */
function* stream(): Generator<Buffer> {
  const cipher = createCipheriv("aes-128-ctr", Buffer.alloc(16), Buffer.alloc(16));
  const zeros = Buffer.alloc(chunk);
  for (let at = 0; at < total; at += chunk) yield cipher.update(zeros);
}

function hashOf(chunks: Iterable<Uint8Array>): string {
  const hash = createHash("sha256");
  for (const each of chunks) hash.update(each);
  return hash.digest("hex");
}

/** The most memory the daemon has held so far, in MiB. */
function peakMib(): number {
  const status = readFileSync(`/proc/${rig.daemon.process.pid}/status`, "utf8");
  return Number(/^VmHWM:\s+(\d+)/m.exec(status)?.[1]) / 1024;
}

/**
 * Runs a program with the stream as its input: how much of it was sent, what it wrote, and its exit
 * code.
 */
async function feed(...args: readonly string[]) {
  const hash = createHash("sha256");
  const result = { sent: 0, received: 0, text: "", code: -1 };
  async function* input() {
    yield { input: { case: "start" as const, value: { idOrName: "one", args: [...args] } } };
    for (const value of stream()) {
      yield { input: { case: "stdin" as const, value } };
      result.sent += value.length;
    }
  }
  for await (const { output } of rig.client.pods.exec(input())) {
    if (output.case === "exit") result.code = output.value.code;
    if (output.case !== "stdout") continue;
    hash.update(output.value);
    result.received += output.value.length;
    if (result.received < 1000) result.text += Buffer.from(output.value).toString();
  }
  return { ...result, hash: hash.digest("hex") };
}

test.serial(
  "tens of megabytes in and out again: nothing is lost, and little of it is held",
  async (t) => {
    // Seconds on a host with nothing else to do, minutes on one with plenty.
    t.timeout(240_000);
    const before = peakMib();
    const through = await feed("cat");
    t.is(through.received, total);
    t.is(through.hash, hashOf(stream()));
    t.is(through.code, 0);
    // Twice as much has passed through; what stays between collections is less.
    t.true(peakMib() - before < 40, `from ${before} to ${peakMib()} MiB`);
    const { output } = await execIn(rig.client, "one", "grep", "VmHWM", "/proc/1/status");
    t.true(Number(/(\d+) kB/.exec(output)?.[1]) < 4096, `the agent: ${output}`);
  },
);

test.serial(
  "how a program ends: its own code, a signal's, and those of one that cannot be run",
  async (t) => {
    const code = async (...args: readonly string[]): Promise<number> =>
      (await execIn(rig.client, "one", ...args)).code;
    t.is(await code("sh", "-c", "exit 3"), 3);
    t.is(await code("sh", "-c", "kill -TERM $$"), 143);
    t.is(await code("no-such-program"), 127);
    t.is(await code("/etc"), 126);
    const inNowhere = { idOrName: "one", args: ["true"], workdir: "/nowhere" };
    async function* input() {
      yield { input: { case: "start" as const, value: inNowhere } };
    }
    for await (const { output } of rig.client.pods.exec(input()))
      if (output.case === "exit") t.is(output.value.code, 125);
  },
);

test.serial(
  "a terminal has the window's size, gets signals, and says when it is resized",
  async (t) => {
    const said = Promise.withResolvers<void>();
    let text = "";
    let code = -1;
    const script =
      "trap 'stty size; exit 7' TERM; stty size; echo begun; while :; do sleep 0.1; done";
    async function* input() {
      const start = {
        idOrName: "one",
        args: ["sh", "-c", script],
        terminal: true,
        rows: 31,
        columns: 97,
      };
      yield { input: { case: "start" as const, value: start } };
      await said.promise;
      yield { input: { case: "resize" as const, value: { rows: 45, columns: 123 } } };
      yield { input: { case: "signal" as const, value: { signal: 15 } } };
      await new Promise(() => {});
    }
    for await (const { output } of rig.client.pods.exec(input())) {
      if (output.case === "stdout") text += Buffer.from(output.value).toString();
      if (text.includes("begun")) said.resolve();
      if (output.case === "exit") code = output.value.code;
    }
    t.is(code, 7);
    t.regex(text, /^(?:24 80|31 97)\r\nbegun\r\n[^]*45 123\r\n$/);
  },
);

test.serial("a program that does not read its input holds its caller back", async (t) => {
  const { sent, code } = await feed("sleep", "2");
  t.is(code, 0);
  t.true(sent < 10_000_000, `${sent} bytes were taken from the caller`);
});

test.serial("50 programs at once: each has its own output and exit code", async (t) => {
  const numbers = Array.from({ length: 50 }, (_, i) => i);
  const results = await Promise.all(
    numbers.map((n) => execIn(rig.client, "one", "sh", "-c", `seq ${n}000 ${n}999; exit ${n}`)),
  );
  for (const n of numbers) {
    const lines = Array.from({ length: 1000 }, (_, i) => `${n * 1000 + i}\n`).join("");
    t.deepEqual(results[n], { output: lines, code: n }, `program ${n}`);
  }
});
