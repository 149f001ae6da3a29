import { closeSync, mkdtempSync, openSync, readFileSync, readSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import fc from "fast-check";
import { linksOf, type Piece, scriptOf } from "../../../../guest-init/agent/main-process/linked.ts";
import { run } from "../../../../linux/processes/command.ts";

const pieceOf =
  (bytes: Uint8Array): Piece =>
  (at, length) =>
    bytes.subarray(at, at + length);

/** Reads a file as the agent does. */
function linksOfFile(file: string): ReturnType<typeof linksOf> {
  const fd = openSync(file, "r");
  try {
    return linksOf(file, (at, length) => {
      const into = new Uint8Array(length);
      return into.subarray(0, readSync(fd, into, 0, length, at));
    });
  } finally {
    closeSync(fd);
  }
}

for (const file of ["/bin/ls", "/usr/bin/git", process.execPath])
  test(`${file} needs what readelf says`, async (t) => {
    const found = linksOfFile(file);
    const dynamic = (await run(["readelf", "--dynamic", "--wide", file])).stdout;
    const needed = [...dynamic.matchAll(/\(NEEDED\).*\[(.+)\]/g)].map(([, name]) => name);
    t.true(needed.length > 0);
    t.deepEqual(found?.libraries, needed as string[]);
    const segments = (await run(["readelf", "--segments", "--wide", file])).stdout;
    const [, interpreter] = /program interpreter: (.+)\]/.exec(segments) ?? [];
    t.is(found?.interpreter, interpreter);
  });

/** A program for x86_64 whose dynamic section names a library and a directory of its own. */
function smallElf(runpath: string): Uint8Array {
  const bytes = new Uint8Array(1024);
  const view = new DataView(bytes.buffer);
  const u64 = (at: number, value: number): void => view.setBigUint64(at, BigInt(value), true);
  bytes.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
  view.setUint16(18, 62, true);
  u64(32, 64);
  view.setUint16(56, 2, true);
  // All of it is loaded at 0x400000; its dynamic section is at 256, the names at 512.
  for (const [i, [type, offset, size]] of [
    [1, 0, 1024],
    [2, 256, 64],
  ].entries() as IterableIterator<[number, [number, number, number]]>) {
    const at = 64 + i * 56;
    view.setUint32(at, type, true);
    u64(at + 8, offset);
    u64(at + 16, 0x400000 + offset);
    u64(at + 32, size);
  }
  for (const [i, [tag, value]] of [
    [1, 1],
    [29, 100],
    [5, 0x400000 + 512],
    [0, 0],
  ].entries() as IterableIterator<[number, [number, number]]>) {
    u64(256 + i * 16, tag);
    u64(256 + i * 16 + 8, value);
  }
  bytes.set(Buffer.from("\0libown.so.1\0"), 512);
  bytes.set(Buffer.from(`${runpath}\0`), 612);
  return bytes;
}

test("a program's own directories come first, and those next to it are found", (t) => {
  const found = linksOf("/opt/app/bin/app", pieceOf(smallElf("$ORIGIN/../lib:relative:/opt/lib")));
  t.deepEqual(found?.libraries, ["libown.so.1"]);
  t.is(found?.interpreter, undefined);
  t.deepEqual(found?.directories.slice(0, 4), [
    "/opt/app/bin/../lib",
    "/opt/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
  ]);
});

test("a script names its interpreter, and what that is to run", (t) => {
  const words = (text: string) => scriptOf(pieceOf(Buffer.from(text)));
  t.deepEqual(words("#!/bin/sh\nexec app"), ["/bin/sh"]);
  t.deepEqual(words("#! /usr/bin/env  node\r\n"), ["/usr/bin/env", "node\r"]);
  t.deepEqual(words("#!"), []);
  t.is(words("# /bin/sh"), undefined);
  t.is(words(""), undefined);
});

test("no file is too damaged: little of it is read, and nothing is thrown", (t) => {
  const whole = smallElf("/opt/lib");
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(whole.length - 1), fc.nat(255)), { maxLength: 40 }),
      fc.nat(whole.length),
      (changes, length) => {
        const bytes = whole.slice(0, length);
        for (const [at, value] of changes) if (at < length) bytes[at] = value;
        let total = 0;
        const read: Piece = (at, wanted) => {
          total += wanted;
          return bytes.subarray(Math.min(at, length), Math.min(at + wanted, length));
        };
        scriptOf(read);
        linksOf("/app", read);
        return total < 512 * 1024;
      },
    ),
    { numRuns: 3000 },
  );
  t.pass();
});

test("a file of another kind needs nothing", (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-linked-"));
  const file = path.join(directory, "data");
  writeFileSync(file, readFileSync("/bin/ls").subarray(1));
  t.is(linksOfFile(file), undefined);
  const wide = smallElf("/opt/lib");
  wide[4] = 1;
  t.is(linksOf("/app", pieceOf(wide)), undefined, "32 bits");
});
