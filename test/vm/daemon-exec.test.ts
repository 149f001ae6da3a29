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

const mib = 2 ** 20;
const total = 50 * mib;
const chunk = 64 * 1024;

/** Bytes that never repeat, the same each time: a chunk lost, doubled or out of order changes their hash. */
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

/** Runs a program with the stream as its input: how much of it was sent, what it wrote, and its exit code. */
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
  "50 MiB in, and 50 MiB in and out: nothing is lost, and little of it is held",
  async (t) => {
    const before = peakMib();
    const into = await feed("sh", "-c", "sha256sum; exit 3");
    t.is(into.text.split(" ")[0], hashOf(stream()));
    t.is(into.code, 3);
    const through = await feed("cat");
    t.is(through.received, total);
    t.is(through.hash, hashOf(stream()));
    t.is(through.code, 0);
    // 150 MiB have passed through; what stays between collections is less.
    t.true(peakMib() - before < 100, `from ${before} to ${peakMib()} MiB`);
  },
);

test.serial("a program that does not read its input holds its caller back", async (t) => {
  const { sent, code } = await feed("sleep", "2");
  t.is(code, 0);
  t.true(sent < total / 4, `${sent} bytes were taken from the caller`);
});

test.serial("20 programs at once: each has its own output and exit code", async (t) => {
  const numbers = Array.from({ length: 20 }, (_, i) => i);
  const results = await Promise.all(
    numbers.map((n) => execIn(rig.client, "one", "sh", "-c", `seq ${n}000 ${n}999; exit ${n}`)),
  );
  for (const n of numbers) {
    const lines = Array.from({ length: 1000 }, (_, i) => `${n * 1000 + i}\n`).join("");
    t.deepEqual(results[n], { output: lines, code: n }, `program ${n}`);
  }
});
