import { spawn } from "node:child_process";
import { once } from "node:events";
import test from "ava";
import {
  bootId,
  isSameProcess,
  processStartTime,
  residentKib,
} from "../../../../linux/processes/proc.ts";

test("the boot has an id", (t) => {
  t.regex(bootId(), /^[0-9a-f-]{36}$/);
});

test("a process is identified by pid and start time", async (t) => {
  const child = spawn("sleep", ["60"]);
  t.teardown(() => child.kill());
  await once(child, "spawn");
  const pid = child.pid as number;
  const startTime = processStartTime(pid) as string;
  t.regex(startTime, /^[0-9]+$/);
  t.true(isSameProcess(pid, startTime));
  t.false(isSameProcess(pid, String(Number(startTime) - 1)), "a reused pid");
  child.kill();
  await once(child, "close");
  t.false(isSameProcess(pid, startTime));
  t.is(processStartTime(pid), undefined);
  t.is(residentKib(pid), undefined);
});

test("a zombie has ended", async (t) => {
  // A shell that starts a child, says its pid and becomes a program that never waits for it. The
  // child ends on command, lest the shell itself still waits for it.
  const parent = spawn("sh", ["-c", "exec 3<&0; read line <&3 & echo $!; exec sleep 60"]);
  t.teardown(() => parent.kill());
  const [data] = (await once(parent.stdout, "data")) as [Buffer];
  const pid = Number(data.toString());
  while (!(await stat(parent.pid as number)).includes("(sleep)")) await new Promise(setImmediate);
  parent.stdin.end("\n");
  while (!/\) Z /.test(await stat(pid))) await new Promise(setImmediate);
  t.false(isSameProcess(pid, processStartTime(pid) as string));
});

async function stat(pid: number): Promise<string> {
  const { readFile } = await import("node:fs/promises");
  return readFile(`/proc/${pid}/stat`, "latin1");
}

test("a program name with blanks and parentheses is read over", (t) => {
  const title = process.title;
  process.title = "a) Z 1 (b";
  t.teardown(() => (process.title = title));
  t.true(isSameProcess(process.pid, processStartTime(process.pid) as string));
});

test("memory in use is known", (t) => {
  t.true((residentKib(process.pid) as number) > 10_000);
});
