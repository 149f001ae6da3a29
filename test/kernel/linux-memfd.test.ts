import { closeSync, ftruncateSync, openSync, readFileSync, readSync, writeSync } from "node:fs";
import test from "ava";
import { openMemfd } from "../../linux/files/memfd.ts";

const path = (fd: number): string => `/proc/self/fd/${fd}`;

test("until it is sealed a memory file is written, whoever opens it", (t) => {
  using file = openMemfd("podnet-test", 4096);
  writeSync(file.fd, Buffer.from("one"), 0, 3, 0);
  const other = openSync(path(file.fd), "r+");
  writeSync(other, Buffer.from("two"), 0, 3, 3);
  closeSync(other);
  t.is(readFileSync(path(file.fd)).subarray(0, 6).toString(), "onetwo");
});

test("what is sealed cannot be changed, through whatever descriptor", (t) => {
  using file = openMemfd("podnet-test", 4096);
  const before = openSync(path(file.fd), "r+");
  file.seal();
  const after = openSync(path(file.fd), "r+");
  for (const fd of [file.fd, before, after]) {
    t.throws(() => writeSync(fd, Buffer.from("x"), 0, 1, 0), { code: "EPERM" });
    t.throws(() => ftruncateSync(fd, 0), { code: "EPERM" });
    t.throws(() => ftruncateSync(fd, 8192), { code: "EPERM" });
  }
  // Nor is a seal added or taken away again.
  t.throws(() => file.seal(), { code: "SYSCALL_FAILED" });
  for (const fd of [before, after]) closeSync(fd);
});

test("readers have offsets of their own, and read alone", (t) => {
  using file = openMemfd("podnet-test", 8);
  writeSync(file.fd, Buffer.from("abcdefgh"), 0, 8, 0);
  using one = file.openReader();
  using other = file.openReader();
  const read = (fd: number): string => {
    const bytes = Buffer.alloc(4);
    readSync(fd, bytes);
    return bytes.toString();
  };
  t.deepEqual([read(one.fd), read(other.fd), read(one.fd)], ["abcd", "abcd", "efgh"]);
  t.throws(() => writeSync(one.fd, Buffer.from("x")), { code: "EBADF" });
});
