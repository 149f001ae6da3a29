import { execFileSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { type Conversion, convertImage } from "../../../images/convert-image.ts";
import {
  setXattr,
  tarOf,
  unpack,
  writeDockerArchive,
  writeLayout,
  xattrOf,
} from "./image-archive.ts";

const limits = { entries: 100_000, bytes: 2 ** 34 };

function directoryOf(t: ExecutionContext): string {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-image-"));
  t.teardown(() => {
    rmSync(directory, { recursive: true, force: true });
  });
  return directory;
}

const convert = (from: string, to: string, more: Partial<Conversion> = {}) =>
  convertImage({
    from,
    to,
    name: undefined,
    architecture: "amd64",
    force: false,
    limits,
    ...more,
  });

/** Two layers with all that a file system has; the upper one hides and replaces. */
function makeLayers(top: string): Buffer[] {
  const [lower, upper] = [path.join(top, "lower"), path.join(top, "upper")];
  const long = "x".repeat(120);
  for (const each of ["etc", "bin", "dev", "old/in", "lib0", `${long}/${long}`, "kept"])
    mkdirSync(path.join(lower, each), { recursive: true });
  const at = (name: string): string => path.join(lower, name);
  writeFileSync(at("etc/one"), "one\n");
  linkSync(at("etc/one"), at("etc/hard"));
  writeFileSync(at("etc/gone"), "gone\n");
  writeFileSync(at("bin/su"), "su\n");
  chownSync(at("bin/su"), 3_000_000, 34);
  chmodSync(at("bin/su"), 0o4755);
  setXattr(at("bin/su"), "security.capability", "0100000200200000000000000000000000000000");
  setXattr(at("bin/su"), "user.bytes", "00010a003d20ff");
  writeFileSync(at("old/in/file"), "old\n");
  writeFileSync(at("kept/file"), "kept\n");
  symlinkSync("lib0", at("lib"));
  symlinkSync(`${long}/${long}/${long}`, at("far"));
  writeFileSync(at(`${long}/${long}/${long}`), "long\n");
  writeFileSync(Buffer.concat([Buffer.from(`${lower}/`), Buffer.of(0xe9, 0x21)]), "no UTF-8\n");
  writeFileSync(at("holes"), "");
  truncateSync(at("holes"), 40 * 2 ** 20);
  writeFileSync(at("holes"), "end", { flag: "a" });
  execFileSync("mknod", [at("dev/null"), "c", "1", "3"]);
  execFileSync("mkfifo", [at("pipe")]);
  chmodSync(at("kept"), 0o1777);
  chmodSync(lower, 0o750);
  for (const each of ["etc", "lib", "old"]) mkdirSync(path.join(upper, each), { recursive: true });
  writeFileSync(path.join(upper, "etc/.wh.gone"), "");
  writeFileSync(path.join(upper, "etc/.wh.one"), "");
  writeFileSync(path.join(upper, "lib/new"), "new\n");
  writeFileSync(path.join(upper, "old/.wh..wh..opq"), "");
  writeFileSync(path.join(upper, "old/other"), "other\n");
  chmodSync(upper, 0o751);
  return [tarOf(lower, "--sparse"), tarOf(upper)];
}

test("an image of each form becomes a squashfs with all that its layers have", async (t) => {
  const top = directoryOf(t);
  const layers = makeLayers(top);
  const config = { Cmd: ["sh"], Env: ["A=b"], User: "web" };
  writeLayout(path.join(top, "gzip"), { layers, name: "app:1", config });
  writeLayout(path.join(top, "zstd"), { layers, compression: "zstd" });
  execFileSync("tar", ["-C", path.join(top, "gzip"), "-cf", path.join(top, "oci.tar"), "."]);
  writeDockerArchive(path.join(top, "docker.tar"), { layers, name: "app:1", config });
  const made: string[] = [];
  for (const form of ["gzip", "zstd", "oci.tar", "docker.tar"]) {
    const file = path.join(top, `${form}.squashfs`);
    const { image, squashfsBytes } = await convert(path.join(top, form), file);
    t.is(squashfsBytes, lstatSync(file).size);
    t.deepEqual(image.names, form === "zstd" ? [] : ["app:1"]);
    if (form !== "zstd") t.deepEqual(image.config.command, ["sh"]);
    made.push(file);
  }
  t.deepEqual(
    readdirSync(top).filter((name) => name.includes("squashfs.part")),
    [],
  );
  for (const file of made) {
    const root = `${file}.root`;
    unpack(file, root);
    const at = (name: string): string => path.join(root, name);
    t.is(lstatSync(root).mode & 0o7777, 0o751);
    t.deepEqual(readdirSync(at("etc")), ["hard"]);
    t.is(readFileSync(at("etc/hard"), "utf8"), "one\n");
    const su = lstatSync(at("bin/su"));
    t.deepEqual([su.mode & 0o7777, su.uid, su.gid], [0o4755, 3_000_000, 34]);
    t.is(xattrOf(at("bin/su"), "security.capability"), "0100000200200000000000000000000000000000");
    t.is(xattrOf(at("bin/su"), "user.bytes"), "00010a003d20ff");
    t.deepEqual(readdirSync(at("old")), ["other"]);
    t.deepEqual([readdirSync(at("lib")), readdirSync(at("lib0"))], [["new"], []]);
    t.is(readFileSync(at("far"), "utf8"), "long\n");
    t.is(lstatSync(at("kept")).mode & 0o7777, 0o1777);
    t.true(lstatSync(at("pipe")).isFIFO());
    t.is(lstatSync(at("dev/null")).rdev, 0x103);
    const names = readdirSync(root, { encoding: "buffer" });
    t.true(names.some((name) => name.equals(Buffer.of(0xe9, 0x21))));
    const holes = lstatSync(at("holes"));
    t.is(holes.size, 40 * 2 ** 20 + 3);
    t.true(holes.blocks < 1000, "the holes are holes");
    t.is(readFileSync(at("holes")).toString("latin1", 40 * 2 ** 20), "end");
  }
});

test("hard links stay one file, across layers as well", async (t) => {
  const top = directoryOf(t);
  const [lower, upper] = [path.join(top, "lower"), path.join(top, "upper")];
  mkdirSync(lower);
  mkdirSync(upper);
  writeFileSync(path.join(lower, "a"), "one file\n");
  linkSync(path.join(lower, "a"), path.join(lower, "b"));
  writeFileSync(path.join(upper, "a"), "");
  linkSync(path.join(upper, "a"), path.join(upper, "c"));
  // The upper layer has the link alone: its file is in the lower one.
  const link = tarOf(upper, "--sort=name", "--exclude=./a");
  const layers = [tarOf(lower), execFileSync("tar", ["-C", upper, "--sort=name", "-c", "a", "c"])];
  t.true(link.length > 0);
  const onlyLink = (layers[1] as Buffer).subarray(512);
  writeLayout(path.join(top, "oci"), { layers: [layers[0] as Buffer, onlyLink] });
  const file = path.join(top, "out");
  await convert(path.join(top, "oci"), file);
  unpack(file, path.join(top, "root"));
  const inodes = ["a", "b", "c"].map((name) => lstatSync(path.join(top, "root", name)));
  t.is(new Set(inodes.map(({ ino }) => ino)).size, 1);
  t.is(inodes[0]?.nlink, 3);
  t.is(readFileSync(path.join(top, "root/c"), "utf8"), "one file\n");
});

test("one of several images is chosen by its name and architecture", async (t) => {
  const top = directoryOf(t);
  mkdirSync(path.join(top, "files"));
  const layers = [tarOf(path.join(top, "files"))];
  const from = path.join(top, "oci");
  writeLayout(
    from,
    { layers, name: "app:1", config: { Cmd: ["one"] } },
    { layers, name: "app:2", config: { Cmd: ["two"] } },
    { layers, name: "arm:1", architecture: "arm64" },
  );
  const to = path.join(top, "out");
  await t.throwsAsync(convert(from, to), {
    code: "INVALID_ARGUMENT",
    message: "There are 3 images for amd64",
  } as object);
  const { image } = await convert(from, to, { name: "app:2" });
  t.deepEqual(image.config.command, ["two"]);
  await t.throwsAsync(convert(from, to), {
    code: "INVALID_ARGUMENT",
    message: /There is a file .* already/,
  } as object);
  await t.throwsAsync(convert(from, to, { name: "arm:1", force: true }), {
    code: "UNSUPPORTED",
    message: "The image is for arm64, not for amd64",
  } as object);
  await t.throwsAsync(convert(from, to, { name: "app:3", force: true }), {
    message: /no image named "app:3"/,
  });
  t.true(existsSync(to), "a refusal leaves the old file");
});

test("a damaged image leaves nothing, and the error names what is damaged", async (t) => {
  const top = directoryOf(t);
  const files = path.join(top, "files");
  mkdirSync(files);
  writeFileSync(path.join(files, "a"), Buffer.alloc(300_000, 7));
  const layers = [tarOf(files)];
  const to = path.join(top, "out");
  const cases: Readonly<Record<string, (blob: string) => void>> = {
    "cannot be uncompressed|its digest is another|header of the archive is damaged": (blob) =>
      writeFileSync(blob, Buffer.from(readFileSync(blob)).fill(1, 200, 210)),
    "cannot be uncompressed|its digest is another": (blob) =>
      truncateSync(blob, lstatSync(blob).size - 9),
    "is missing": (blob) => rmSync(blob),
  };
  for (const [said, damage] of Object.entries(cases)) {
    const from = path.join(top, `oci-${said.length}`);
    writeLayout(from, { layers });
    const blobs = path.join(from, "blobs/sha256");
    const [blob = ""] = readdirSync(blobs)
      .map((name) => path.join(blobs, name))
      .filter((name) => readFileSync(name)[0] === 0x1f);
    damage(blob);
    const thrown = await t.throwsAsync(convert(from, to));
    t.regex(thrown?.message ?? "", new RegExp(said), said);
    t.is((thrown as Error & { code?: string }).code, "IMAGE_UNREADABLE");
  }
  // A file's bytes that are others make no archive wrong: the digest alone says so.
  const plain = path.join(top, "oci-plain");
  writeLayout(plain, { layers, compression: "none" });
  const blobs = path.join(plain, "blobs/sha256");
  const [blob = ""] = readdirSync(blobs)
    .map((name) => path.join(blobs, name))
    .filter((name) => lstatSync(name).size > 300_000);
  writeFileSync(blob, Buffer.from(readFileSync(blob)).fill(8, 100_000, 100_001));
  await t.throwsAsync(convert(plain, to), { message: /its digest is another/ });
  t.deepEqual(
    readdirSync(top).filter((name) => name.startsWith("out")),
    [],
  );
});

/** Waits, without a turn of this process, until sqfstar has made the part that it writes. */
function partOf(directory: string): void {
  const isThere = (): boolean => readdirSync(directory).some((name) => name.includes(".part-"));
  for (let waited = 0; !isThere(); waited++) {
    if (waited === 3000) throw new Error("sqfstar writes nothing");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
  }
}

test("limits and an interruption end a conversion, and leave nothing", async (t) => {
  const top = directoryOf(t);
  const files = path.join(top, "files");
  mkdirSync(files);
  for (let i = 0; i < 50; i += 1) writeFileSync(path.join(files, `${i}`), Buffer.alloc(100_000, i));
  const from = path.join(top, "oci");
  writeLayout(from, { layers: [tarOf(files)] });
  const to = path.join(top, "out");
  await t.throwsAsync(convert(from, to, { limits: { entries: 40, bytes: 2 ** 30 } }), {
    message: "The image has more than 40 files",
  });
  await t.throwsAsync(convert(from, to, { limits: { entries: 100, bytes: 2 ** 20 } }), {
    message: "The image has more than 1 MiB of files",
  });
  for (const after of [1, 1.01]) {
    const controller = new AbortController();
    await t.throwsAsync(
      convert(from, to, {
        signal: controller.signal,
        // In the first reading, and in the second, while sqfstar runs and has begun its file.
        progress: (read, all) => {
          if (read < (all / 2) * after) return;
          if (after > 1) partOf(top);
          controller.abort(2);
        },
      }),
      { code: "CANCELLED" } as object,
    );
  }
  t.deepEqual(
    readdirSync(top).filter((name) => name.startsWith("out")),
    [],
  );
});
