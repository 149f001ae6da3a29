import test from "ava";
import { findProgram, run } from "../../linux/command.ts";

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

test("programs are found in the system directories too", (t) => {
  t.regex(findProgram("sh") ?? "", /\/sh$/);
  t.regex(findProgram("ip") ?? "", /\/ip$/);
  t.is(findProgram("no-such-program-here"), undefined);
  t.is(findProgram("."), undefined, "a directory is no program");
});
