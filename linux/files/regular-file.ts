import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { PodnetError } from "../../core/errors.ts";

/** How a file is opened. */
export interface ReadOptions {
  /**
   * A symbolic link is followed to what it leads to: administrators link configuration. Not unless
   * given.
   */
  readonly follow?: boolean;
}

/**
 * Reads a regular file whole, `limit` bytes at most. A pipe, a device or a socket of its name is
 * refused without a wait: to open a FIFO that has no writer would hold up the whole process. Throws
 * `SYSCALL_FAILED` for those and for what is too large, and what `node:fs` throws.
 */
export function readRegular(
  path: string,
  limit: number,
  { follow = false }: ReadOptions = {},
): Buffer {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY } = constants;
  const fd = openSync(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW));
  try {
    const found = fstatSync(fd);
    if (!found.isFile()) throw unfit(path, "is no regular file", "Put a file in its place");
    return readAll(fd, path, limit, found.size);
  } finally {
    closeSync(fd);
  }
}

/**
 * Reads to the end, into memory for the size that the file says it has: 64 KiB for each small file
 * would keep garbage collection busy. A file may grow as it is read, and files of /proc and /sys
 * say 0.
 */
function readAll(fd: number, path: string, limit: number, size: number): Buffer {
  const chunks: Buffer[] = [];
  // The end is noticed by a read that finds nothing, for which there is room in the first chunk.
  let chunk = Buffer.allocUnsafe(Math.min(Math.max(size + 1, leastChunk), limit + 1));
  for (let length = 0, filled = 0; ; ) {
    const read = readSync(fd, chunk, { offset: filled });
    length += read;
    filled += read;
    if (length > limit) throw unfit(path, `has more than ${limit} bytes`, "Make it smaller");
    if (read > 0 && filled < chunk.length) continue;
    chunks.push(chunk.subarray(0, filled));
    if (read === 0) return chunks.length === 1 ? chunk.subarray(0, filled) : Buffer.concat(chunks);
    chunk = Buffer.allocUnsafe(Math.min(65_536, limit - length + 1));
    filled = 0;
  }
}

const leastChunk = 4096;

const unfit = (path: string, what: string, hint: string): PodnetError =>
  new PodnetError("SYSCALL_FAILED", `"${path}" ${what}`, { hint, details: { path } });
