import { assertNever } from "../../core/brand.ts";

/** One file of an archive. Paths are relative, without `./`. */
export type Entry =
  | {
      readonly kind: "file";
      readonly path: string;
      readonly mode: number;
      readonly data: Uint8Array;
    }
  | { readonly kind: "directory"; readonly path: string; readonly mode: number }
  | { readonly kind: "symlink"; readonly path: string; readonly target: string }
  | {
      readonly kind: "character-device";
      readonly path: string;
      readonly mode: number;
      readonly major: number;
      readonly minor: number;
    };

const typeBits = {
  file: 0o100000,
  directory: 0o040000,
  symlink: 0o120000,
  "character-device": 0o020000,
} as const;

const align4 = (length: number): number => (length + 3) & ~3;
/** Archives are whole blocks of 512 bytes, as cpio writes them. */
const blockSize = 512;

function member(
  inode: number,
  path: string,
  mode: number,
  data: Uint8Array,
  device = { major: 0, minor: 0 },
): Buffer {
  const name = Buffer.from(`${path}\0`);
  // inode, mode, uid, gid, links, mtime, size, dev major/minor, rdev major/minor, name length,
  // checksum
  const numbers = [
    inode,
    mode,
    0,
    0,
    1,
    0,
    data.length,
    0,
    0,
    device.major,
    device.minor,
    name.length,
    0,
  ];
  const header = `070701${numbers.map((n) => n.toString(16).toUpperCase().padStart(8, "0")).join("")}`;
  const dataAt = align4(header.length + name.length);
  const bytes = Buffer.alloc(dataAt + align4(data.length));
  bytes.write(header, "latin1");
  name.copy(bytes, header.length);
  bytes.set(data, dataAt);
  return bytes;
}

/** Every directory a path lies in, outermost first. */
function* above(path: string): Generator<string> {
  for (let at = path.indexOf("/"); at >= 0; at = path.indexOf("/", at + 1)) yield path.slice(0, at);
}

/**
 * A cpio archive in the `newc` form the kernel unpacks
 * (Documentation/driver-api/early-userspace/buffer-format.rst). Equal entries give equal bytes, in
 * whatever order they come: sorted by path, owner root, time 0. Missing directories are added.
 * Throws RangeError for a path given twice or not relative.
 */
export function cpioArchive(entries: readonly Entry[]): Buffer {
  const all = new Map<string, Entry>();
  for (const entry of entries) {
    if (
      !/^[^/]/.test(entry.path) ||
      entry.path.split("/").some((part) => part === "" || part === "..")
    )
      throw new RangeError(`"${entry.path}" is not a relative path`);
    if (all.has(entry.path)) throw new RangeError(`"${entry.path}" is there twice`);
    all.set(entry.path, entry);
  }
  for (const path of entries.flatMap((entry) => [...above(entry.path)]))
    if (!all.has(path)) all.set(path, { kind: "directory", path, mode: 0o755 });

  // A directory is a prefix of what it holds, so it sorts first.
  const sorted = [...all.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
  const parts = sorted.map((entry, i) => encode(i + 1, entry));
  parts.push(member(0, "TRAILER!!!", 0, new Uint8Array(0)));
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  parts.push(Buffer.alloc((blockSize - (length % blockSize)) % blockSize));
  return Buffer.concat(parts);
}

function encode(inode: number, entry: Entry): Buffer {
  const none = new Uint8Array(0);
  switch (entry.kind) {
    case "file":
      return member(inode, entry.path, typeBits.file | entry.mode, entry.data);
    case "directory":
      return member(inode, entry.path, typeBits.directory | entry.mode, none);
    case "symlink":
      return member(inode, entry.path, typeBits.symlink | 0o777, Buffer.from(entry.target));
    case "character-device":
      return member(inode, entry.path, typeBits[entry.kind] | entry.mode, none, entry);
    default:
      return assertNever(entry);
  }
}
