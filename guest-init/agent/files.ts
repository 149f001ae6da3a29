import type { PlacedFile } from "../protocol/file-messages.ts";
import { joinBytes } from "../protocol/bytes.ts";
import { decodeUtf8 } from "../../core/utf8.ts";
import { SysError, eagain, failedWith, openFlag, sys } from "./sys.ts";

/** Largest file read whole, bytes: it fits a control frame. */
const readLimit = 1024 * 1024 - 4096;

/** Most files are small ones of /proc and /sys: they are read in one call. */
const small = new Uint8Array(4096);

/** A whole file. Throws `EFBIG` above `limit` bytes. */
export function readFile(path: string, limit = readLimit): Uint8Array {
  const count = sys.readSmall(path, small);
  return count < small.length ? small.slice(0, count) : readLarge(path, limit);
}

function readLarge(path: string, limit: number): Uint8Array {
  // A pipe without a writer would block, and with it everything else.
  const fd = sys.open(path, openFlag.read | openFlag.nonBlock);
  try {
    const parts: Uint8Array[] = [];
    let total = 0;
    for (;;) {
      const part = new Uint8Array(32768);
      const count = sys.read(fd, part) ?? 0;
      if (count === 0) return joinBytes(parts);
      total += count;
      if (total > limit) throw new SysError(path, 27);
      parts.push(part.subarray(0, count));
    }
  } finally {
    sys.close(fd);
  }
}

/** A file as text; undefined when it cannot be read. */
export function readText(path: string): string | undefined {
  try {
    return decodeUtf8(readFile(path));
  } catch (thrown) {
    if (thrown instanceof SysError) return undefined;
    throw thrown;
  }
}

/** Writes to an open file until all is written, and closes it. */
function writeAndClose(fd: number, bytes: Uint8Array): void {
  try {
    for (let at = 0; at < bytes.length; ) {
      const count = sys.write(fd, bytes.subarray(at));
      // A device may also take nothing without an error, as a virtio port whose queue is full.
      if (count === undefined || count === 0) throw new SysError("write", eagain);
      at += count;
    }
  } finally {
    sys.close(fd);
  }
}

/** Writes into an existing file without replacing it: for /proc and /sys. */
export function writeInto(path: string, text: string): void {
  sys.writeSmall(path, text);
}

/** Makes a file with this content, or overwrites the one that is there. */
export function writeFile(path: string, content: Uint8Array): void {
  const { write, create, truncate, nonBlock } = openFlag;
  writeAndClose(sys.open(path, write | create | truncate | nonBlock), content);
}

/** Replaces a file whole: readers see the old content or the new one, nothing between. */
export function replaceFile(path: string, content: Uint8Array, mode = 0o644): void {
  const { write, create, truncate } = openFlag;
  const next = `${path}.podnet-new`;
  const fd = sys.open(next, write | create | truncate, mode);
  try {
    writeAndClose(fd, content);
    sys.rename(next, path);
  } catch (thrown) {
    sys.unlink(next);
    // A file that is mounted upon, as /etc/resolv.conf in a container, can only be written in
    // place.
    if (!failedWith(thrown, "EBUSY", "EXDEV")) throw thrown;
    writeAndClose(sys.open(path, write | truncate), content);
  }
}

/**
 * Replaces a file whole, with its owner and mode; directories above it are made. Until it is whole
 * it has a name that no other program of the guest can have made a link of.
 */
export function placeFile({ path, mode, uid, gid, data }: PlacedFile): void {
  makeDirectories(path.slice(0, path.lastIndexOf("/")));
  const { write, create, exclusive } = openFlag;
  const next = `${path}.podnet-new`;
  try {
    sys.unlink(next);
  } catch (thrown) {
    if (!failedWith(thrown, "ENOENT")) throw thrown;
  }
  const fd = sys.open(next, write | create | exclusive, 0o600);
  try {
    try {
      sys.setOwner(fd, uid, gid, mode);
    } catch (thrown) {
      sys.close(fd);
      throw thrown;
    }
    writeAndClose(fd, data);
    sys.rename(next, path);
  } catch (thrown) {
    sys.unlink(next);
    throw thrown;
  }
}

/** Makes a directory and those above it; one that exists is fine. */
export function makeDirectories(path: string): void {
  const parts = path.split("/").filter((part) => part !== "");
  let at = "";
  for (const part of parts) {
    at += `/${part}`;
    if (sys.mode(at) !== undefined) continue;
    try {
      sys.mkdir(at);
    } catch (thrown) {
      if (!failedWith(thrown, "EEXIST")) throw thrown;
    }
  }
}
