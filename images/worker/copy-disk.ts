import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import { PodnetError } from "../../core/errors.ts";
import { type Digest, parseDigest } from "../archive/digest.ts";
import type { ReadableFile } from "../tar/byte-source.ts";

const pieceBytes = 2 ** 20;
/** Holes of this size and more stay holes: a block of most file systems. */
const blockBytes = 4096;

interface Copy {
  readonly to: string;
  readonly mostBytes: number;
  readonly progress: (done: number, all: number) => void;
}

/**
 * Copies a disk as it is, without what is zero, and answers the digest of all its bytes. Throws
 * `LIMIT_REACHED`.
 */
export async function copyDisk(
  file: ReadableFile,
  size: number,
  { to, mostBytes, progress }: Copy,
): Promise<Digest> {
  if (size > mostBytes)
    throw new PodnetError("LIMIT_REACHED", "The disk is larger than images may be", {
      hint: "Raise images.image_max_mib",
    });
  const hash = createHash("sha256");
  const buffer = Buffer.alloc(pieceBytes);
  await using copy = await open(to, "wx", 0o600);
  for (let at = 0; at < size; ) {
    const { bytesRead } = await file.read(buffer, 0, Math.min(pieceBytes, size - at), at);
    if (bytesRead === 0)
      throw new PodnetError("IMAGE_UNREADABLE", "The disk became shorter while it was read", {
        hint: "Import it again when nothing writes to it",
      });
    const piece = buffer.subarray(0, bytesRead);
    hash.update(piece);
    for (let from = 0; from < bytesRead; from += blockBytes) {
      const block = piece.subarray(from, from + blockBytes);
      if (block.some((byte) => byte !== 0)) await copy.write(block, 0, block.length, at + from);
    }
    at += bytesRead;
    progress(at, size);
  }
  await copy.truncate(size);
  return parseDigest(`sha256:${hash.digest("hex")}`);
}
