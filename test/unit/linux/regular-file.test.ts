import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { readRegular } from "../../../linux/files/regular-file.ts";

function openDirectory(): { readonly path: string } & Disposable {
  const path = mkdtempSync(join(tmpdir(), "regular-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true }) };
}

test("a file is read whole, whatever its size", (t) => {
  using directory = openDirectory();
  const path = join(directory.path, "file");
  for (const size of [0, 1, 4094, 4095, 4096, 4097, 65_536, 70_000, 300_000]) {
    const bytes = Buffer.from(Array.from({ length: size }, (_, i) => i % 251));
    writeFileSync(path, bytes);
    t.deepEqual(readRegular(path, 1 << 20), bytes, String(size));
    t.deepEqual(readRegular(path, size), bytes, `${size}, as many as there may be`);
    if (size > 0)
      t.throws(() => readRegular(path, size - 1), { message: /has more than \d+ bytes/ });
  }
});

test("files of /proc say no size and are read whole, short and long", async (t) => {
  t.deepEqual(readRegular("/proc/version", 4096), readFileSync("/proc/version"));
  const env = { LONG: "x".repeat(100_000) };
  const child = spawn("/bin/sleep", ["60"], { env });
  const ended = once(child, "exit");
  t.is(readRegular(`/proc/${child.pid}/environ`, 1 << 20).toString(), `LONG=${env.LONG}\0`);
  t.throws(() => readRegular(`/proc/${child.pid}/environ`, 100_000), { code: "SYSCALL_FAILED" });
  child.kill();
  await ended;
});

test("what is no regular file is refused without a wait, and links unless asked for", (t) => {
  using directory = openDirectory();
  const fifo = join(directory.path, "fifo");
  execFileSync("mkfifo", [fifo]);
  t.throws(() => readRegular(fifo, 10), { code: "SYSCALL_FAILED", message: /is no regular file/ });
  const [file, link] = [join(directory.path, "file"), join(directory.path, "link")];
  writeFileSync(file, "text");
  symlinkSync(file, link);
  t.throws(() => readRegular(link, 10), { code: "ELOOP" });
  t.is(readRegular(link, 10, { follow: true }).toString(), "text");
});
