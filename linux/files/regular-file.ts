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
    if (!fstatSync(fd).isFile()) throw unfit(path, "is no regular file", "Put a file in its place");
    return readAll(fd, path, limit);
  } finally {
    closeSync(fd);
  }
}

/** A file may grow as it is read, and files of /proc and /sys report a size of 0. */
function readAll(fd: number, path: string, limit: number): Buffer {
  const chunks: Buffer[] = [];
  for (let length = 0; ; ) {
    const chunk = Buffer.allocUnsafe(Math.min(65_536, limit - length + 1));
    const read = readSync(fd, chunk);
    if (read === 0) return Buffer.concat(chunks);
    length += read;
    if (length > limit) throw unfit(path, `has more than ${limit} bytes`, "Make it smaller");
    chunks.push(chunk.subarray(0, read));
  }
}

const unfit = (path: string, what: string, hint: string): PodnetError =>
  new PodnetError("SYSCALL_FAILED", `"${path}" ${what}`, { hint, details: { path } });
