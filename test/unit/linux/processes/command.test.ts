import { readFileSync } from "node:fs";
import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { findProgram, run } from "../../../../linux/processes/command.ts";
import { until } from "../../../lab/until.ts";

test("gives output as it is", async (t) => {
  t.deepEqual(await run(["printf", "a b\\n\\n"]), { stdout: "a b\n\n", stderr: "", exitCode: 0 });
});

test("passes text to standard input, and an empty one otherwise", async (t) => {
  t.is((await run(["cat"], { stdin: "text" })).stdout, "text");
  t.is((await run(["cat"])).stdout, "");
});

test("no shell looks at the arguments", async (t) => {
  t.is((await run(["printf", "%s", "$HOME; echo `id`"])).stdout, "$HOME; echo `id`");
});

test("messages come in the C locale, and the environment can be added to", async (t) => {
  const { stdout } = await run(["sh", "-c", "echo $LC_ALL $EXTRA"], {
    env: { EXTRA: "x", LC_ALL: "de" },
  });
  t.is(stdout, "C x\n");
});

test("a failure names the command, its exit code and what it said", async (t) => {
  const error = await t.throwsAsync(run(["sh", "-c", "echo no such thing >&2; exit 3"]), {
    code: "COMMAND_FAILED",
    message: '"sh" failed with exit code 3: no such thing',
  });
  t.like(error, { details: { exitCode: 3, stderr: "no such thing" } });
});

test("an exit code can be declared fine", async (t) => {
  t.is((await run(["sh", "-c", "exit 3"], { okCodes: [0, 3] })).exitCode, 3);
});

test("death by a signal is a failure", async (t) => {
  const error = await t.throwsAsync(run(["sh", "-c", "kill -KILL $$"]), { code: "COMMAND_FAILED" });
  t.like(error, { details: { signal: "SIGKILL" } });
});

test("a command that does not read its input is no crash", async (t) => {
  t.is((await run(["true"], { stdin: "x".repeat(1 << 20) })).exitCode, 0);
});

test("a missing command gets a hint", async (t) => {
  const error = await t.throwsAsync(run(["no-such-program-here"]), { code: "COMMAND_FAILED" });
  t.like(error, { hint: "Install the package that holds no-such-program-here" });
  await t.throwsAsync(run(["/no/such/program"]), { code: "COMMAND_FAILED", message: /ENOENT/ });
});

test("deadline and cancellation end the command", async (t) => {
  await t.throwsAsync(run(["sleep", "60"], { timeoutMs: 50 }), { code: "DEADLINE_EXCEEDED" });
  const giveUp = new AbortController();
  const running = run(["sleep", "60"], { signal: giveUp.signal });
  giveUp.abort();
  await t.throwsAsync(running, { code: "CANCELLED" });
});

/** Whether a process runs; one that has ended and was not yet asked for does not. */
function runs(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) [ZX]/s.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return false;
  }
}

/**
 * Runs shell lines that start a child which would take a minute, and print its id; gives how the
 * command ended, and the child.
 */
async function endedWithChild(
  lines: string,
  options: { readonly timeoutMs: number; readonly signal?: AbortSignal },
): Promise<{ readonly code: string; readonly ms: number; readonly child: number }> {
  const begun = performance.now();
  try {
    await run(["sh", "-c", lines], options);
  } catch (thrown) {
    if (!(thrown instanceof PodnetError)) throw thrown;
    const child = Number(thrown.details?.["stderr"]);
    return { code: thrown.code, ms: performance.now() - begun, child };
  }
  throw new Error("The command has not failed");
}

test("a command's children end with it, at its deadline and when the caller gives up", async (t) => {
  const lines = "sleep 60 & echo $! >&2; wait";
  const late = await endedWithChild(lines, { timeoutMs: 300 });
  t.is(late.code, "DEADLINE_EXCEEDED");
  t.true(late.ms < 10_000, `${late.ms} ms`);
  t.false(runs(late.child));
  const unwanted = await endedWithChild(lines, {
    timeoutMs: 60_000,
    signal: AbortSignal.timeout(300),
  });
  t.is(unwanted.code, "CANCELLED");
  t.true(unwanted.ms < 10_000, `${unwanted.ms} ms`);
  t.false(runs(unwanted.child));
});

test("a child that takes no notice of SIGTERM is killed, though no caller waits for what it prints", async (t) => {
  const deaf = `sh -c 'trap "" TERM; echo $$ >&2; exec sleep 60 2>&-' >/dev/null & wait`;
  const { code, child } = await endedWithChild(deaf, { timeoutMs: 300 });
  t.is(code, "DEADLINE_EXCEEDED");
  await until("the child's end", () => !runs(child));
});

test("who has left a command's process group and holds its outputs does not hold up its deadline", async (t) => {
  const { code, ms, child } = await endedWithChild("setsid sleep 60 & echo $! >&2; wait", {
    timeoutMs: 300,
  });
  t.is(code, "DEADLINE_EXCEEDED");
  t.true(ms < 10_000, `${ms} ms`);
  t.true(runs(child), "it was no child of the group: the test is of something else");
  process.kill(child, "SIGKILL");
});

test("programs are found in the system directories too", (t) => {
  t.regex(findProgram("sh") ?? "", /\/sh$/);
  t.regex(findProgram("ip") ?? "", /\/ip$/);
  t.is(findProgram("no-such-program-here"), undefined);
  t.is(findProgram("."), undefined, "a directory is no program");
});
