import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { gzipSync, zstdCompressSync } from "node:zlib";
import test from "ava";
import fc from "fast-check";
import { BuildCache, keyOf } from "../../../../guest-init/image/cache.ts";
import { type Entry, cpioArchive } from "../../../../guest-init/image/cpio.ts";
import {
  dependencies,
  loadOrder,
  moduleName,
} from "../../../../guest-init/image/kernel-modules.ts";
import {
  bzImagePayload,
  extractVmlinux,
  payloadFormat,
} from "../../../../guest-init/image/vmlinux.ts";
import { run } from "../../../../linux/processes/command.ts";

let directory: string;
test.before(() => {
  directory = mkdtempSync(path.join(tmpdir(), "podnet-image-"));
});
test.after.always(() => rmSync(directory, { recursive: true, force: true }));

const entries: Entry[] = [
  { kind: "file", path: "etc/passwd", mode: 0o644, data: Buffer.from("root\n") },
  { kind: "file", path: "init", mode: 0o755, data: Buffer.from("#!") },
  { kind: "symlink", path: "bin/sh", target: "/bin/busybox" },
  { kind: "directory", path: "tmp", mode: 0o1777 },
  { kind: "character-device", path: "dev/console", mode: 0o600, major: 5, minor: 1 },
  { kind: "file", path: "etc/empty", mode: 0o600, data: Buffer.alloc(0) },
];

test("an archive is the same whatever the order, and whole blocks", (t) => {
  const archive = cpioArchive(entries);
  t.deepEqual(cpioArchive(entries.toReversed()), archive);
  t.is(archive.length % 512, 0);
});

test("cpio itself reads the archive as it was meant", async (t) => {
  const file = path.join(directory, "archive.cpio");
  writeFileSync(file, cpioArchive(entries));
  const { stdout } = await run([
    "sh",
    "-c",
    'TZ=UTC cpio -tv --quiet --numeric-uid-gid < "$1"',
    "sh",
    file,
  ]);
  const lines = stdout
    .trim()
    .split("\n")
    .map((line) => line.replaceAll(/ +/g, " "));
  t.deepEqual(lines, [
    "drwxr-xr-x 1 0 0 0 Jan 1 1970 bin",
    "lrwxrwxrwx 1 0 0 12 Jan 1 1970 bin/sh -> /bin/busybox",
    "drwxr-xr-x 1 0 0 0 Jan 1 1970 dev",
    "crw------- 1 0 0 5, 1 Jan 1 1970 dev/console",
    "drwxr-xr-x 1 0 0 0 Jan 1 1970 etc",
    "-rw------- 1 0 0 0 Jan 1 1970 etc/empty",
    "-rw-r--r-- 1 0 0 5 Jan 1 1970 etc/passwd",
    "-rwxr-xr-x 1 0 0 2 Jan 1 1970 init",
    "drwxrwxrwt 1 0 0 0 Jan 1 1970 tmp",
  ]);
});

test("cpio unpacks the bytes that went in", async (t) => {
  const file = path.join(directory, "bytes.cpio");
  const data = Buffer.from(Uint8Array.from({ length: 70_001 }, (_, i) => (i * 31) & 255));
  writeFileSync(file, cpioArchive([{ kind: "file", path: "a/b/data", mode: 0o644, data }]));
  const to = path.join(directory, "out");
  await run(["sh", "-c", 'mkdir "$2" && cd "$2" && cpio -id --quiet < "$1"', "sh", file, to]);
  t.deepEqual(readFileSync(path.join(to, "a/b/data")), data);
});

test("paths that are not relative, or twice, are refused", (t) => {
  for (const wrong of ["/etc", "../x", "a//b", "a/../b", ""])
    t.throws(() => cpioArchive([{ kind: "directory", path: wrong, mode: 0o755 }]), {
      instanceOf: RangeError,
    });
  t.throws(() => cpioArchive([...entries, ...entries]), { message: /there twice/ });
});

test("a directory always comes before what it holds", (t) => {
  const name = fc.stringMatching(/^[a-c.-]{1,3}$/).filter((text) => text !== "." && text !== "..");
  t.notThrows(() =>
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.array(name, { minLength: 1, maxLength: 4 }).map((p) => p.join("/"))),
        (paths) => {
          const given = paths.map((p): Entry => ({ kind: "directory", path: p, mode: 0o755 }));
          const text = cpioArchive(given).toString("latin1");
          const seen = [...text.matchAll(/070701[0-9A-F]{104}([^\0]+)\0/g)].map(
            ([, found]) => found as string,
          );
          return seen.every(
            (p, i) => !p.includes("/") || seen.indexOf(p.slice(0, p.lastIndexOf("/"))) < i,
          );
        },
      ),
    ),
  );
});

const module = (name: string, ...needs: string[]) =>
  [name, { name, file: `kernel/${name}.ko`, needs }] as const;

test("modules come after what they need, once, without what is built in or loaded", (t) => {
  const all = new Map([
    module("a", "b", "c"),
    module("b", "c"),
    module("c", "core"),
    module("d", "a"),
  ]);
  const builtin = new Set(["core"]);
  const namesOf = (order: readonly { name: string }[]) => order.map(({ name }) => name);
  const first = loadOrder(["b"], all, builtin);
  t.deepEqual(namesOf(first), ["c", "b"]);
  t.deepEqual(namesOf(loadOrder(["d", "a"], all, builtin, first)), ["a", "d"]);
  t.throws(() => loadOrder(["nope"], all, builtin), { code: "IMAGE_MISSING" });
  const circle = new Map([module("x", "y"), module("y", "x")]);
  t.throws(() => loadOrder(["x"], circle, builtin), { code: "IMAGE_MISSING" });
});

test("a module's own words name what it needs", (t) => {
  const bytes = Buffer.from(
    "\x7fELF....\0license=GPL\0depends=virtio,net-failover\0name=x\0",
    "latin1",
  );
  t.deepEqual(dependencies(bytes), ["virtio", "net_failover"]);
  t.deepEqual(dependencies(Buffer.from("\0depends=\0")), []);
  t.deepEqual(dependencies(Buffer.from("nothing")), []);
  t.is(moduleName("kernel/drivers/virtio-rng.ko"), "virtio_rng");
});

/** A bzImage around this payload: one setup sector, then the payload 16 bytes into the rest. */
function bzImage(packed: Uint8Array, unpackedSize: number): Buffer {
  const size = Buffer.alloc(4);
  size.writeUInt32LE(unpackedSize);
  const payload = Buffer.concat([packed, size]);
  const head = Buffer.alloc(1024 + 16);
  head[0x1f1] = 1;
  head.write("HdrS", 0x202);
  head.writeUInt32LE(16, 0x248);
  head.writeUInt32LE(payload.length, 0x24c);
  return Buffer.concat([head, payload]);
}

test("a kernel comes out of a bzImage, however it is packed", async (t) => {
  const kernel = Buffer.concat([Buffer.from("\x7fELF", "latin1"), Buffer.alloc(100_000, "kernel")]);
  const source = path.join(directory, "kernel");
  writeFileSync(source, kernel);
  await run(["lz4", "-l", "-q", source, `${source}.lz4`]);
  await run(["sh", "-c", 'xz -c --check=crc32 "$1" > "$1.xz"', "sh", source]);
  const packed = {
    gzip: gzipSync(kernel),
    zstd: zstdCompressSync(kernel),
    lz4: readFileSync(`${source}.lz4`),
    xz: readFileSync(`${source}.xz`),
  };
  for (const [format, bytes] of Object.entries(packed)) {
    const image = path.join(directory, `bzImage.${format}`);
    writeFileSync(image, bzImage(bytes, kernel.length));
    t.is(payloadFormat(bzImagePayload(readFileSync(image))), format as never);
    await extractVmlinux(image, path.join(directory, "vmlinux"));
    t.deepEqual(readFileSync(path.join(directory, "vmlinux")), kernel, format);
  }
  const wrong = path.join(directory, "wrong");
  writeFileSync(wrong, bzImage(gzipSync(kernel), kernel.length + 1));
  await t.throwsAsync(extractVmlinux(wrong, path.join(directory, "x")), {
    code: "IMAGE_UNREADABLE",
  });
  for (const bytes of [
    Buffer.alloc(10),
    Buffer.alloc(4096),
    bzImage(Buffer.alloc(20), 1).subarray(0, 1040),
  ])
    t.throws(() => payloadFormat(bzImagePayload(bytes)), { code: "IMAGE_UNREADABLE" });
});

test("a step with the same inputs is done once; a failed one leaves nothing", async (t) => {
  const home = path.join(directory, "cache");
  const cache = new BuildCache(home);
  let runs = 0;
  const make = async (to: string): Promise<void> => {
    runs++;
    writeFileSync(to, "result");
  };
  const first = await cache.file("a.txt", keyOf("x"), make);
  t.is(await cache.file("a.txt", keyOf("x"), make), first);
  t.is(runs, 1);
  t.not(await cache.file("a.txt", keyOf("y"), make), first);
  await t.throwsAsync(
    cache.file("b.txt", keyOf("x"), async (to) => {
      writeFileSync(to, "half");
      throw new Error("broken off");
    }),
  );
  t.deepEqual(
    readdirSync(home).filter((name) => name.includes("b") && !name.startsWith("a")),
    [],
  );
  t.not(keyOf("ab", "c"), keyOf("a", "bc"));
});
