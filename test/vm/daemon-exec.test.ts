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

test.serial(
  "a program without a caller runs as its user, and is followed, signalled and waited for by its id",
  async (t) => {
    const { pods } = rig.client;
    const startExec = async (script: string, more = {}) => {
      const start = { idOrName: "one", args: ["sh", "-c", script], ...more };
      return (await pods.startExec({ start })).exec?.id ?? "";
    };
    const read = async (execId: string): Promise<string> => {
      let text = "";
      for await (const { output } of pods.followExec({ execId }))
        if (output.case === "stdout") text += Buffer.from(output.value).toString();
      return text;
    };
    const accounts =
      "echo web:x:1000:100::/srv:/bin/sh >> /etc/passwd; echo readers:x:70:web >> /etc/group";
    t.is((await execIn(rig.client, "one", "sh", "-c", accounts)).code, 0);
    const ids = 'grep -E "^(Uid|Gid|Groups)" /proc/self/status; echo $HOME; pwd; echo $A; exit 3';
    const lines = async (more: object) =>
      (await read(await startExec(ids, { workdir: "/tmp", env: { A: "b c" }, ...more })))
        .replaceAll(/[\t ]+/g, " ")
        .replaceAll(/ $/gm, "");
    const as = (uid: string, gid: string, groups: string, home: string): string =>
      `Uid: ${`${uid} `.repeat(4).trim()}\nGid: ${`${gid} `.repeat(4).trim()}\n` +
      `Groups: ${groups}\n${home}\n/tmp\nb c\n`;
    t.is(await lines({ user: "web" }), as("1000", "100", "70 100", "/srv"));
    t.is(await lines({ user: "web:readers" }), as("1000", "70", "70", "/srv"));
    t.is(await lines({ user: "7:8" }), as("7", "8", "8", "/"));
    await t.throwsAsync(startExec("true", { user: "no-such-user" }), { code: "AGENT_REFUSED" });

    const id = await startExec("trap 'exit 9' TERM; echo begun; while :; do sleep 0.1; done");
    const [listed] = (await pods.listExecs({ idOrName: "one" })).execs.slice(-1);
    t.like(listed, { id, state: "running", podName: "one" });
    for await (const { output } of pods.followExec({ execId: id }))
      if (output.case === "stdout") break;
    await pods.signalExec({ execId: id, signal: 15 });
    t.like((await pods.waitExec({ execId: id })).exec, { state: "exited", code: 9 });

    const late = await startExec("sleep 60", { timeoutMs: 50 });
    const { exec } = await pods.waitExec({ execId: late });
    t.deepEqual([exec?.state, exec?.error?.code], ["failed", "DEADLINE_EXCEEDED"]);

    // Without a reader it writes all it wants.
    const flood = await startExec("head -c 20000000 /dev/zero");
    const { exec: flooded } = await pods.waitExec({ execId: flood });
    t.like(flooded, { state: "exited", code: 0, outputBytes: 20_000_000n });
    let kept = 0;
    for await (const { output } of pods.followExec({ execId: flood, noFollow: true }))
      if (output.case === "stdout") kept += output.value.length;
    t.true(kept > 0 && kept <= 65_536, `${kept} bytes are kept`);
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

test.serial("ids end with podnetd; the programs run on", async (t) => {
  const start = { idOrName: "one", args: ["sh", "-c", "sleep 5; echo $$ > /tmp/ran-on"] };
  const { exec } = await rig.client.pods.startExec({ start });
  await rig.restart("stop");
  await t.throwsAsync(rig.client.pods.getExec({ execId: exec?.id ?? "" }), {
    code: "EXEC_NOT_FOUND",
  });
  const script = "until [ -s /tmp/ran-on ]; do sleep 0.2; done";
  t.is((await execIn(rig.client, "one", "sh", "-c", script)).code, 0);
});
