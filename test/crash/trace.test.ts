import test from "ava";
import { readTrace } from "./trace.ts";

const files = { recordFile: "/tmp/record", logFile: "/tmp/log" };
const begin = `7   execve("/usr/bin/node", ["/usr/bin/node", "/podnet/daemon/main/main.ts"], 0x7ffc /* 40 vars */) = 0`;
const child =
  "7   clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f) = 8";
const passes = (point: string): string =>
  `7   write(20</tmp/record>, "${point}\\n", ${point.length + 1}) = ${point.length + 1}`;
const naked = (lines: readonly string[], without?: "command" | "spawn"): number => {
  const text = [begin, ...lines].join("\n");
  return readTrace(text, without === undefined ? files : { ...files, without }).naked.length;
};

const command = { before: passes("command:x:before#1"), after: passes("command:x:after#1") };
const spawn = { before: passes("spawn:qemu:before#1"), after: passes("spawn:qemu:after#1") };

for (const [when, lines] of [
  ["around it", [command.before, child, spawn.before, child, spawn.after, command.after]],
  ["within it", [spawn.before, child, command.before, child, command.after, spawn.after]],
  ["begun with it", [spawn.before, command.before, child, child, spawn.after, command.after]],
] as const)
  test(`a machine that is started needs its own effect, with a command ${when}`, (t) => {
    t.is(naked(lines), 0);
    t.is(naked(lines, "spawn"), 1);
    t.is(naked(lines, "command"), 1);
  });

test("an effect starts one process, and one that ran to its end has started it", (t) => {
  t.is(naked([command.before, child, child, command.after]), 1);
  t.is(naked([command.before, command.after]), 1);
  t.is(naked([command.before, passes("command:x:failed#1"), child]), 1);
});

test("a file is no effect's that is about something else", (t) => {
  const write = `7   openat(AT_FDCWD</>, "/tmp/stray", O_WRONLY|O_CREAT, 0666) = 9</tmp/stray>`;
  for (const boundary of ["commit", "socket", "command"])
    t.is(naked([passes(`${boundary}:x:before#1`), write]), 1, boundary);
  t.is(naked([passes("file:x:before#1"), write]), 0);
});
