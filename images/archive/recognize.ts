import { PodnetError } from "../../core/errors.ts";
import { rangeOf, type ReadableFile } from "../tar/byte-source.ts";
import { blockBytes } from "../tar/entry.ts";
import { decodeHeader } from "../tar/header.ts";
import { unreadable } from "../unreadable.ts";
import { compressionOf, type Compression, uncompressedBytes } from "./compression.ts";

/** What a container image may be stored as. */
const expectedImage =
  "Expected an OCI layout or an archive of one, an archive of docker save or podman save, the tar " +
  "archive of a root directory, or a disk that boots (qcow2, raw)";

const asDisk = 'A disk with a system of its own goes to a pod by "podnet create --disk FILE"';
const asQcow2 = `${asDisk}, or into the store of images, once "qemu-img convert -O qcow2" has made a qcow2 of it`;
const asRoot = 'A pod has it as its root by "--disk FILE,ro --cmdline podnet.root=vda"';
const uncompress = (program: string): string =>
  `Uncompress it first: ${program} -dc FILE | podnet image import -`;

interface Format {
  /** With its article. */
  readonly name: string;
  readonly at: number;
  /** One character a byte. */
  readonly magic: string;
  /** What to do with such a file. */
  readonly advice?: string;
  /** It is a disk that may have a bootloader of its own. */
  readonly disk?: DiskFormat;
}

/** How the bytes of a disk are written. */
export type DiskFormat = "raw" | "qcow2";

/** Files that people take for images; the first that fits counts. */
const formats: readonly Format[] = [
  { name: "a qcow2 disk", at: 0, magic: "QFI\u00fb", disk: "qcow2" },
  { name: "a vmdk disk", at: 0, magic: "KDMV", advice: asQcow2 },
  { name: "a vmdk disk", at: 0, magic: "COWD", advice: asQcow2 },
  { name: "a vmdk disk", at: 0, magic: "# Disk DescriptorFile", advice: asQcow2 },
  { name: "a vdi disk", at: 64, magic: "\u007f\u0010\u00da\u00be", advice: asQcow2 },
  { name: "a vhdx disk", at: 0, magic: "vhdxfile", advice: asQcow2 },
  { name: "a vhd disk", at: 0, magic: "conectix", advice: asQcow2 },
  { name: "a squashfs", at: 0, magic: "hsqs", advice: asRoot },
  { name: "an erofs", at: 1024, magic: "\u00e2\u00e1\u00f5\u00e0" },
  { name: "an iso image", at: 32_769, magic: "CD001", advice: asDisk },
  { name: "an xz file", at: 0, magic: "\u00fd7zXZ\0", advice: uncompress("xz") },
  { name: "a bzip2 file", at: 0, magic: "BZh", advice: uncompress("bzip2") },
  { name: "an lz4 file", at: 0, magic: "\u0004\u0022M\u0018", advice: uncompress("lz4") },
  { name: "a zip archive", at: 0, magic: "PK\u0003\u0004" },
  { name: "a 7z archive", at: 0, magic: "7z\u00bc\u00af\u0027\u001c" },
  { name: "a cpio archive", at: 0, magic: "07070" },
  { name: "a Debian package", at: 0, magic: "!<arch>\ndebian-binary" },
  { name: "an rpm package", at: 0, magic: "\u00ed\u00ab\u00ee\u00db" },
  { name: "a program or a kernel (ELF)", at: 0, magic: "\u007fELF" },
  { name: "a raw disk with an xfs", at: 0, magic: "XFSB", advice: asDisk },
  { name: "a raw disk with an ext file system", at: 1080, magic: "\u0053\u00ef", advice: asDisk },
  { name: "a raw disk with a btrfs", at: 65_600, magic: "_BHRfS_M", advice: asDisk },
  { name: "a raw disk with partitions (GPT)", at: 512, magic: "EFI PART", disk: "raw" },
  { name: "a raw disk with partitions (GPT)", at: 4096, magic: "EFI PART", advice: asDisk },
  { name: "a raw disk with a boot sector", at: 510, magic: "\u0055\u00aa", disk: "raw" },
];

/** So many bytes say what a file is. */
const beginBytes = 68 * 1024;

/** What a file is by its first bytes; undefined when it is none of the known ones. Pure. */
export function formatOf(begin: Uint8Array): Pick<Format, "name" | "advice" | "disk"> | undefined {
  const bytes = Buffer.from(begin.buffer, begin.byteOffset, begin.length);
  const found = formats.find(
    ({ at, magic }) => bytes.toString("latin1", at, at + magic.length) === magic,
  );
  if (found !== undefined) return found;
  const text = bytes.toString("latin1", 0, 64).trimStart().toLowerCase();
  if (text.startsWith("<!doctype html") || text.startsWith("<html"))
    return { name: "an HTML page", advice: "Look whether the download asked for a login" };
  if (text.startsWith("{") || text.startsWith("[")) return { name: "a JSON text" };
  return undefined;
}

/** What an image is made of. */
export type ImageFile =
  /** Of a container image or of a root directory. */
  | { readonly kind: "archive"; readonly compression: Compression | undefined }
  /** With a system of its own. */
  | { readonly kind: "disk"; readonly format: DiskFormat };

/**
 * Distinguishes archives and disks that may boot, and refuses by name what is neither. Throws
 * `IMAGE_UNREADABLE`, `UNSUPPORTED`.
 */
export async function recognize(file: ReadableFile, size: number): Promise<ImageFile> {
  if (size === 0) throw noImage("empty", undefined);
  const begin = await firstOf(rangeOf(file, 0, size));
  const compression = compressionOf(begin);
  if (compression === undefined) {
    const format = isTar(begin) ? undefined : formatOf(begin)?.disk;
    if (format !== undefined) return { kind: "disk", format };
    refuse(begin, "");
    return { kind: "archive", compression };
  }
  const inner = await firstOf(uncompressedBytes(rangeOf(file, 0, size), undefined, Infinity));
  if (inner.length === 0) throw noImage(`${articled(compression)} of an empty file`, undefined);
  refuse(inner, `${articled(compression)} of `);
  return { kind: "archive", compression };
}

/** As `recognize`, and refuses disks too. Resolves to how the archive is compressed. */
export async function checkArchive(
  file: ReadableFile,
  size: number,
): Promise<Compression | undefined> {
  const found = await recognize(file, size);
  if (found.kind === "archive") return found.compression;
  throw noImage(`a ${found.format} disk`, "podnet image import takes a disk that boots by itself");
}

const articled = (compression: Compression): string => `a ${compression}`;

/** `before` says what the bytes were uncompressed from. */
function refuse(begin: Uint8Array, before: string): void {
  if (isTar(begin)) return;
  const compression = compressionOf(begin);
  if (compression !== undefined)
    throw noImage(before + articled(compression), "Uncompress it once");
  const found = formatOf(begin);
  if (found !== undefined)
    throw noImage(
      before + found.name,
      found.disk === undefined ? found.advice : "Uncompress a disk before it is imported",
    );
  const isShort = begin.length < blockBytes;
  throw noImage(`${before}${isShort ? "less than a block" : "no tar archive"}`, undefined);
}

/** Its first block is a header, or all zeros as an archive without entries has. */
function isTar(begin: Uint8Array): boolean {
  if (begin.length < blockBytes) return false;
  try {
    const header = decodeHeader(begin.subarray(0, blockBytes));
    return (
      header !== undefined || (formatOf(begin) === undefined && begin.every((byte) => byte === 0))
    );
  } catch (thrown) {
    if (thrown instanceof PodnetError) return false;
    throw thrown;
  }
}

async function firstOf(stream: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const part of stream) {
    parts.push(part);
    length += part.length;
    if (length >= beginBytes) break;
  }
  return Buffer.concat(parts).subarray(0, beginBytes);
}

/** The refusal of what is no image: what it is, what was expected, what to do. */
export function noImage(what: string, advice: string | undefined, noun = "The file"): PodnetError {
  const hint = advice === undefined ? expectedImage : `${expectedImage}. ${advice}`;
  return unreadable(`${noun} is ${what}, not a container image`, hint);
}
