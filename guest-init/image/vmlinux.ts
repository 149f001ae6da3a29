import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { gunzipSync, zstdDecompressSync } from "node:zlib";
import { PodnetError } from "../../core/errors.ts";
import { run } from "../../linux/processes/command.ts";

const unreadable = (what: string): PodnetError =>
  new PodnetError("IMAGE_UNREADABLE", `The kernel image ${what}`, {
    hint: "Remove build/debs and build/cache, and build the image again",
  });

/**
 * The compressed kernel inside a bzImage (Documentation/arch/x86/boot.rst: setup_sects,
 * payload_offset, payload_length).
 */
export function bzImagePayload(image: Buffer): Buffer {
  if (image.length < 0x260 || image.toString("latin1", 0x202, 0x206) !== "HdrS")
    throw unreadable("is not a bzImage");
  const setupSectors = image[0x1f1] || 4;
  const start = (setupSectors + 1) * 512 + image.readUInt32LE(0x248);
  const length = image.readUInt32LE(0x24c);
  if (start + length > image.length) throw unreadable("is cut short");
  return image.subarray(start, start + length);
}

/** Ends every payload: the kernel's size unpacked, u32 little endian. */
const sizeField = 4;

/** How the build compressed the kernel, by the first bytes. */
export function payloadFormat(payload: Buffer): "lz4" | "zstd" | "xz" | "gzip" {
  const magic = payload.toString("hex", 0, 6);
  if (magic.startsWith("02214c18")) return "lz4";
  if (magic.startsWith("28b52ffd")) return "zstd";
  if (magic.startsWith("fd377a585a00")) return "xz";
  if (magic.startsWith("1f8b")) return "gzip";
  throw unreadable(`is packed in an unknown way (${magic})`);
}

/**
 * Writes the ELF kernel inside a bzImage to `to`: QEMU starts it by PVH, 0.4 s sooner than the
 * bzImage.
 */
export async function extractVmlinux(bzImage: string, to: string): Promise<void> {
  const payload = bzImagePayload(readFileSync(bzImage));
  const size = payload.readUInt32LE(payload.length - sizeField);
  const packed = payload.subarray(0, -sizeField);
  const format = payloadFormat(packed);
  if (format === "gzip") writeFileSync(to, gunzipSync(packed));
  else if (format === "zstd") writeFileSync(to, zstdDecompressSync(packed));
  else await unpackWith(format, packed, to);
  const kernel = readFileSync(to);
  if (kernel.length !== size || kernel.toString("hex", 0, 4) !== "7f454c46")
    throw unreadable(`unpacked to ${kernel.length} bytes where ${size} of an ELF file are due`);
}

async function unpackWith(tool: "lz4" | "xz", packed: Buffer, to: string): Promise<void> {
  const source = `${to}.${tool}`;
  try {
    writeFileSync(source, packed);
    // lz4 wants names; xz writes to standard output alone. Neither output passes through here.
    await run(["sh", "-c", `${tool} -dc -- "$1" > "$2"`, "unpack", source, to], {
      timeoutMs: 120_000,
    });
  } finally {
    rmSync(source, { force: true });
  }
}
