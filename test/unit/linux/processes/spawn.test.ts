import {
  closeSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import test from "ava";
import { ReportPipe, spawnProcess } from "../../../../linux/processes/spawn.ts";

/** Keeps the loop alive: who waits for a program's end alone does not. */
const waiting = setInterval(() => {}, 1000);
test.after.always(() => clearInterval(waiting));

const env = { PATH: process.env["PATH"] ?? "", ONLY: "this" };

/** What a script says on descriptor 3, how it ends, and a directory of its own. */
async function run(script: string, umask?: number) {
  const cwd = mkdtempSync(path.join(os.tmpdir(), "spawn-"));
  const log = openSync(path.join(cwd, "log"), "w");
  using report = new ReportPipe();
  try {
    const program = await spawnProcess("sh", {
      args: ["-c", script],
      cwd,
      env,
      descriptors: [log, log, ...report.descriptors],
      ...(umask === undefined ? {} : { umask }),
    });
    report.handedOver();
    let said = "";
    for await (const chunk of report.stream.setEncoding("utf8")) said += String(chunk);
    const how = await program.ended;
    const mode = statSync(path.join(cwd, "made"), { throwIfNoEntry: false })?.mode;
    return {
      said,
      how,
      cwd,
      mode,
      pid: program.pid,
      log: readFileSync(path.join(cwd, "log"), "utf8"),
    };
  } finally {
    closeSync(log);
    rmSync(cwd, { recursive: true });
  }
}

for (const umask of [undefined, 0o077]) {
  const where = umask === undefined ? "on another thread" : "with a mask of rights";
  test(`a program gets its directory, environment and descriptors, and a session (${where})`, async (t) => {
    const script = `pwd >&3; echo $ONLY $HOME >&3; : > made; echo out; echo err >&2
      cut -d' ' -f6 /proc/$$/stat >&3; readlink /proc/$$/fd/0 >&3; exit 7`;
    const { said, how, cwd, mode, pid, log } = await run(script, umask);
    t.deepEqual(said.split("\n"), [cwd, "this", `${pid}`, "/dev/null", ""]);
    t.is(log, "out\nerr\n");
    t.is(how, "exit code 7");
    t.is((mode ?? 0) & 0o777, 0o666 & ~(umask ?? process.umask()));
  });
}

test("no signal is blocked or ignored, as Node ignores one", async (t) => {
  const { said } = await run("grep -E '^Sig(Blk|Ign):' /proc/$$/status >&3");
  const [blocked, ignored] = [...said.matchAll(/\t(\w+)/g)].map(([, hex]) => BigInt(`0x${hex}`));
  t.is(blocked, 0n);
  // (Those of the C library's own are no concern of programs.)
  t.is((ignored ?? 0n) & 0x7fff_ffffn, 0n);
});

test("a signal that ends it is named", async (t) => {
  t.is((await run("kill -KILL $$")).how, "SIGKILL");
});

test("descriptors keep their places, whatever their numbers here", async (t) => {
  using first = new ReportPipe();
  using second = new ReportPipe();
  const [one = -1, two = -1] = [...first.descriptors, ...second.descriptors];
  // (Many more than there are numbers below: each number here is the place of another one.)
  const many = Array.from({ length: 60 }, (_, n) => (n % 2 === 0 ? one : two));
  const args = ["-c", "echo a >&3; echo b >&4; echo c >&9"];
  const { ended } = await spawnProcess("sh", { args, cwd: "/", env, descriptors: [2, 2, ...many] });
  t.is(await ended, "exit code 0");
  first.handedOver();
  second.handedOver();
  const heard = ({ stream }: ReportPipe) => Array.fromAsync(stream.setEncoding("utf8"));
  t.is((await heard(first)).join(""), "a\nc\n");
  t.is((await heard(second)).join(""), "b\n");
});

test("many at once all end", async (t) => {
  const ends = await Promise.all(Array.from({ length: 40 }, (_, n) => run(`exit ${n}`)));
  t.deepEqual(
    ends.map(({ how }) => how),
    ends.map((_, n) => `exit code ${n}`),
  );
});

test.serial("what cannot be executed is refused, and leaves no descriptor", async (t) => {
  const input = { args: [], cwd: "/", env, descriptors: [1, 2] };
  const held = (): number => readdirSync("/proc/self/fd").length;
  const before = held();
  for (const umask of [{}, { umask: 0o077 }]) {
    await t.throwsAsync(spawnProcess("/none", { ...input, ...umask }), { code: "ENOENT" });
    await t.throwsAsync(spawnProcess("/etc/passwd", { ...input, ...umask }), { code: "EACCES" });
    await t.throwsAsync(spawnProcess("sh", { ...input, ...umask, cwd: "/none" }), {
      code: "ENOENT",
    });
  }
  await t.throwsAsync(spawnProcess("sh", { ...input, descriptors: [1, 1_000_000] }), {
    message: /fcntl failed with EBADF/,
  });
  t.is(held(), before);
});
