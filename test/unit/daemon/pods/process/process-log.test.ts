import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import * as fc from "fast-check";
import { encodeOutput, linesOf } from "../../../../../daemon/pods/process/log-lines.ts";
import { ProcessLog, readLog, removeLog } from "../../../../../daemon/pods/process/process-log.ts";

const directory = mkdtempSync(join(tmpdir(), "process-log-"));
test.after.always(() => rmSync(directory, { recursive: true, force: true }));

const bytes = (text: string): Uint8Array => Buffer.from(text);
const textOf = (path: string): string =>
  readLog(path)
    .map((line) => (line.kind === "output" ? Buffer.from(line.data).toString("latin1") : ""))
    .join("");

test("what is read is what was written, whatever the bytes", (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.boolean(), (data, stderr) => {
        const lines = [...linesOf(encodeOutput("2026-01-01T00:00:00.000Z", stderr, data))];
        const read = Buffer.concat(
          lines.map((line) => (line.kind === "output" ? line.data : new Uint8Array())),
        );
        return (
          read.equals(Buffer.from(data)) &&
          lines.every((line) => line.kind === "output" && line.stderr === stderr)
        );
      }),
    ),
  );
});

test("a program cannot write podnetd's own lines", (t) => {
  const path = join(directory, "forged");
  const log = new ProcessLog(path, 1);
  log.write(0, false, bytes("# podnet run=9 at=9\n# podnet run=8 at=8"), 0);
  log.close();
  t.deepEqual(
    readLog(path).filter(({ kind }) => kind === "mark"),
    [{ kind: "mark", run: 1, at: 0 }],
  );
});

test("the next podnetd goes on where the log ends, also behind half a line", (t) => {
  const path = join(directory, "again");
  const first = new ProcessLog(path, 3);
  first.write(0, false, bytes("one\ntw"), 0);
  first.close();
  appendFileSync(join(path, "main.log"), "1970-01-01T00:00:00.000Z stdout F o");
  const second = new ProcessLog(path, 3);
  t.is(second.position, 6);
  second.write(0, false, bytes("o\n"), 6);
  second.close();
  t.is(textOf(path), "one\ntwo\n");
  const other = new ProcessLog(path, 4);
  t.is(other.position, 0);
  other.close();
});

test("output that the guest had no more of is missing, and the position is right", (t) => {
  const path = join(directory, "gap");
  const log = new ProcessLog(path, 1);
  log.write(0, false, bytes("a\n"), 0);
  log.write(0, false, bytes("b\n"), 1000);
  log.close();
  t.is(log.lost, 998);
  const again = new ProcessLog(path, 1);
  t.is(again.position, 1002);
  again.close();
});

test("a log has two files of bounded size, and its end is kept", (t) => {
  const path = join(directory, "large");
  const log = new ProcessLog(path, 1);
  const line = bytes(`${"x".repeat(30_000)}\n`);
  for (let i = 0; i < 800; i++) log.write(0, i % 2 === 1, line, i * line.length);
  log.close();
  for (const name of ["main.log", "main.log.1"])
    t.true(statSync(join(path, name)).size <= 8 * 2 ** 20 + 65_536, name);
  const again = new ProcessLog(path, 1);
  t.is(again.position, 800 * line.length);
  again.close();
  t.regex(readFileSync(join(path, "main.log"), "latin1"), /^# podnet run=1 at=\d+\n/);
  removeLog(path);
  t.deepEqual(readLog(path), []);
});

test("a write that fails costs its output alone", (t) => {
  const path = join(directory, "full");
  const log = new ProcessLog(path, 1);
  log.close();
  log.write(0, false, bytes("lost\n"), 0);
  t.is(log.lost, 5);
  t.is(log.position, 5);
});

test("output that a full disk did not take is missing, and the next podnetd knows the position", (t) => {
  const small = mkdtempSync(join(directory, "small-"));
  execFileSync("mount", ["-n", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small]);
  t.teardown(() => execFileSync("umount", ["-n", small]));
  const path = join(small, "log");
  const log = new ProcessLog(path, 1);
  log.write(0, false, bytes("first\n"), 0);
  const filler = join(small, "filler");
  t.throws(() => writeFileSync(filler, Buffer.alloc(2 ** 20)), { code: "ENOSPC" });
  const large = `${"x".repeat(20_000)}\n`;
  log.write(0, false, bytes(large), 6);
  t.is(log.lost, large.length);
  rmSync(filler);
  log.write(0, false, bytes("third\n"), 6 + large.length);
  log.close();
  const next = new ProcessLog(path, 1);
  t.is(next.position, 12 + large.length);
  next.close();
  t.is(textOf(path), "first\nthird\n");
});
