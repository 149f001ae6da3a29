import { appendFileSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { boundLog, lastLine, logTail } from "../../../../hypervisor/process/run-dir.ts";

const directory = (): string => mkdtempSync(join(tmpdir(), "podnet-run-"));

test("QEMU's log is emptied when it has grown too long, and not before", async (t) => {
  const runDir = directory();
  const log = join(runDir, "qemu.log");
  await t.notThrowsAsync(boundLog(runDir), "there is none");
  writeFileSync(log, Buffer.alloc(1 << 20, "x"));
  await boundLog(runDir);
  t.is(readFileSync(log).length, 1 << 20);
  appendFileSync(log, "x");
  await boundLog(runDir);
  t.is(readFileSync(log).length, 0);
});

test("of what QEMU said its end is kept, and one line of that is shown", async (t) => {
  const runDir = directory();
  t.is(await logTail(runDir), "");
  const text = `${"x".repeat(5000)}\nqemu-system-x86_64: no such\u001b[2J file\n`;
  writeFileSync(join(runDir, "qemu.log"), text);
  const tail = await logTail(runDir);
  t.true(tail.length <= 2048);
  t.is(lastLine(tail), "no such\\u001b[2J file");
});
