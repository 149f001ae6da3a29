import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { gzipSync, zstdCompressSync } from "node:zlib";
import test from "ava";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { checkArchive, recognize } from "../../../images/archive/recognize.ts";
import { rootfsImage } from "../../../images/archive/rootfs.ts";
import { openStored } from "../../../images/archive/stored-files.ts";
import { iso9660 } from "../../../hypervisor/disks/iso9660.ts";
import { tarOf, writeDockerArchive, writeLayout } from "./image-archive.ts";

const top = mkdtempSync(path.join(tmpdir(), "podnet-recognize-"));
test.after.always(() => {
  rmSync(top, { recursive: true, force: true });
});
const at = (name: string): string => path.join(top, name);
mkdirSync(at("root/etc"), { recursive: true });
writeFileSync(at("root/etc/text"), "text\n");

/** What a file of these bytes, or of this name, is refused with; its compression when it is not. */
async function found(given: Uint8Array | string): Promise<string | PodnetError | undefined> {
  const file = typeof given === "string" ? given : at("given");
  if (typeof given !== "string") writeFileSync(file, given);
  await using opened = await open(file);
  const { size } = await opened.stat();
  try {
    const it = await recognize(opened, size);
    return it.kind === "disk" ? `a ${it.format} disk` : it.compression;
  } catch (thrown) {
    if (isPodnetError(thrown, "IMAGE_UNREADABLE")) return thrown;
    throw thrown;
  }
}

/** A file of so many zeros, but for these bytes, one a character. */
function zerosWith(bytes: number, places: Readonly<Record<number, string>>): Buffer {
  const all = Buffer.alloc(bytes);
  for (const [place, text] of Object.entries(places)) all.write(text, Number(place), "latin1");
  return all;
}

test.serial(
  "what is no image is refused by its name, with what was expected and what to do",
  async (t) => {
    execFileSync("mksquashfs", [at("root"), at("squashfs"), "-quiet", "-no-progress"]);
    writeFileSync(at("ext4"), "");
    truncateSync(at("ext4"), 4 * 2 ** 20);
    execFileSync("mke2fs", ["-q", "-t", "ext4", at("ext4")]);
    writeFileSync(at("plain"), "text\n".repeat(1000));
    const packed = (program: string): Buffer => execFileSync(program, ["-c", at("plain")]);
    execFileSync("python3", ["-m", "zipfile", "-c", at("plain.zip"), at("plain")]);
    // (bzip2 is on no bare Debian.)
    const compress =
      "import bz2,sys; sys.stdout.buffer.write(bz2.compress(sys.stdin.buffer.read()))";
    const bzip2 = execFileSync("python3", ["-c", compress], { input: "text" });
    const cpio = execFileSync("cpio", ["-o", "-H", "newc", "--quiet"], { input: at("plain") });
    const iso = iso9660("CIDATA", { "user-data": "x" });
    const gpt = zerosWith(2 ** 20, { 510: "\u0055\u00aa", 512: "EFI PART" });
    const cases: readonly (readonly [Uint8Array | string, RegExp, RegExp])[] = [
      [zerosWith(2 ** 20, { 0: "KDMV" }), /is a vmdk disk/, /qemu-img convert -O qcow2/],
      [Buffer.from("# Disk DescriptorFile\nversion=1\n"), /is a vmdk disk/, /qemu-img/],
      [at("squashfs"), /is a squashfs/, /podnet\.root=vda/],
      [at("ext4"), /is a raw disk with an ext file system/, /--disk/],
      [iso, /is an iso image/, /--disk/],
      [packed("xz"), /is an xz file/, /xz -dc FILE \| podnet image import -/],
      [bzip2, /is a bzip2 file/, /bzip2 -dc/],
      [at("plain.zip"), /is a zip archive/, /OCI layout/],
      [cpio, /is a cpio archive/, /OCI layout/],
      [process.execPath, /is a program or a kernel \(ELF\)/, /OCI layout/],
      [Buffer.from("\n<!DOCTYPE html><title>Log in</title>"), /is an HTML page/, /login/],
      [Buffer.from('{"errors":[]}'), /is a JSON text/, /OCI layout/],
      [new Uint8Array(0), /is empty/, /OCI layout/],
      [Buffer.from("abc"), /is less than a block/, /OCI layout/],
      [at("plain"), /is no tar archive/, /OCI layout/],
      [zerosWith(4096, { 600: "x" }), /is no tar archive/, /OCI layout/],
      [gzipSync(gpt), /is a gzip of a raw disk with partitions/, /Uncompress a disk/],
      [zstdCompressSync(iso), /is a zstd of an iso image/, /--disk/],
      [gzipSync(gzipSync(tarOf(at("root")))), /is a gzip of a gzip/, /once/],
      [gzipSync(""), /is a gzip of an empty file/, /OCI layout/],
      [gzipSync("abc"), /is a gzip of less than a block/, /OCI layout/],
      [gzipSync("text\n".repeat(1000)), /is a gzip of no tar archive/, /OCI layout/],
    ];
    for (const [given, what, todo] of cases) {
      const refusal = await found(given);
      if (!(refusal instanceof PodnetError)) {
        t.fail(String(what));
        continue;
      }
      const { message, hint = "" } = refusal;
      t.regex(message, /^The file is .*, not a container image$/);
      t.regex(message, what);
      t.regex(hint, /^Expected an OCI layout or an archive of one, an archive of docker save/);
      t.regex(hint, todo, message);
    }
    const cut = gzipSync(tarOf(at("root"))).subarray(0, 40);
    t.regex(((await found(cut)) as Error).message, /^The file is damaged or cut short/);
  },
);

test.serial("archives pass, compressed or not", async (t) => {
  writeLayout(at("layout"), { layers: [tarOf(at("root"))], name: "app:1" });
  writeDockerArchive(at("docker.tar"), { layers: [tarOf(at("root"))] });
  const old = execFileSync("tar", ["--format=v7", "-C", at("root"), "-c", "."]);
  for (const archive of [tarOf(at("layout")), tarOf(at("root")), old]) {
    t.is(await found(archive), undefined);
    t.is(await found(gzipSync(archive)), "gzip");
    t.is(await found(zstdCompressSync(archive)), "zstd");
  }
  t.is(await found(at("docker.tar")), undefined);
});

test.serial(
  "a compressed archive of an image, and one without files, are no root directories",
  async (t) => {
    const asRoot = async (bytes: Uint8Array): Promise<string> => {
      writeFileSync(at("given"), bytes);
      await using file = await open(at("given"));
      const compression = (await checkArchive(file, bytes.length)) as "gzip" | undefined;
      const { image } = await rootfsImage(file, bytes.length, {
        architecture: "amd64",
        compression,
        mostBytes: 2 ** 30,
      });
      return image.digest;
    };
    const plain = await asRoot(tarOf(at("root")));
    t.is(await asRoot(gzipSync(tarOf(at("root")))), plain);
    writeLayout(at("layout2"), { layers: [tarOf(at("root"))] });
    writeDockerArchive(at("docker2.tar"), { layers: [tarOf(at("root"))] });
    const docker = execFileSync("gzip", ["-c", at("docker2.tar")]);
    for (const image of [gzipSync(tarOf(at("layout2"))), docker]) {
      const refusal = { code: "IMAGE_UNREADABLE", message: /compressed by gzip, as a whole/ };
      t.regex(
        (await t.throwsAsync<PodnetError>(asRoot(image), refusal)).hint ?? "",
        /gzip -dc FILE/,
      );
    }
    writeFileSync(at("whole.gz"), gzipSync(tarOf(at("layout2"))));
    await t.throwsAsync(openStored(at("whole.gz")), { message: /compressed by gzip, as a whole/ });
    for (const empty of [Buffer.alloc(10_240), gzipSync(Buffer.alloc(10_240))])
      await t.throwsAsync(asRoot(empty), {
        message: "The file is an archive without files, not a container image",
      });
  },
);

test.serial(
  "a disk that may boot is no archive, which import takes and convert refuses",
  async (t) => {
    const gpt = zerosWith(2 ** 20, { 510: "\u0055\u00aa", 512: "EFI PART" });
    t.is(await found(gpt), "a raw disk");
    t.is(await found(zerosWith(2 ** 20, { 510: "\u0055\u00aa" })), "a raw disk");
    t.is(await found(zerosWith(2 ** 20, { 0: "QFI\u00fb" })), "a qcow2 disk");
    await using file = await open(at("given"));
    const error = await t.throwsAsync<PodnetError>(checkArchive(file, 2 ** 20));
    t.regex(error?.message ?? "", /is a qcow2 disk, not a container image/);
    t.regex(error?.hint ?? "", /podnet image import/);
  },
);
