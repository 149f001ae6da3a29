import { unreadable } from "../unreadable.ts";
import { blockBytes, type Bytes, type TarEntry } from "./entry.ts";

/**
 * A header block of an archive (POSIX.1-2008, pax, "ustar Interchange Format", and GNU tar's
 * additions): fields at fixed places.
 */
export interface Header {
  readonly path: Bytes;
  readonly type: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  readonly mtime: number;
  readonly target: Bytes;
  readonly major: number;
  readonly minor: number;
  /** The block, for fields that only some types have. */
  readonly block: Uint8Array;
}

/** A header block; undefined for zeros, which end an archive. Throws `IMAGE_UNREADABLE`. */
export function decodeHeader(block: Uint8Array): Header | undefined {
  let unsigned = 0;
  for (const byte of block) unsigned += byte;
  if (unsigned === 0) return undefined;
  let [signed, spaces] = [unsigned, 0];
  for (const byte of block) if (byte > 127) signed -= 256;
  for (let i = 148; i < 156; i += 1) {
    const byte = block[i] as number;
    spaces += 32 - byte;
    signed += 32 - (byte > 127 ? byte - 256 : byte);
  }
  const sum = numberAt(block, 148, 8);
  // (Some old programs have added signed bytes.)
  if (sum !== unsigned + spaces && sum !== signed)
    throw unreadable("A header of the archive is damaged: its checksum is wrong");
  const name = textAt(block, 0, 100);
  const isPosix = textAt(block, 257, 8).startsWith("ustar") && block[262] === 0;
  const prefix = isPosix ? textAt(block, 345, 155) : "";
  return {
    path: prefix === "" ? name : `${prefix}/${name}`,
    type: String.fromCharCode(block[156] as number),
    mode: numberAt(block, 100, 8) & 0o7777,
    uid: numberAt(block, 108, 8),
    gid: numberAt(block, 116, 8),
    size: numberAt(block, 124, 12),
    mtime: numberAt(block, 136, 12),
    target: textAt(block, 157, 100),
    major: numberAt(block, 329, 8),
    minor: numberAt(block, 337, 8),
    block,
  };
}

/** Text up to the first zero byte. */
export function textAt(block: Uint8Array, offset: number, length: number): Bytes {
  const field = Buffer.from(block.buffer, block.byteOffset + offset, length);
  const end = field.indexOf(0);
  return field.toString("latin1", 0, end < 0 ? length : end);
}

/** Octal digits, or GNU's big-endian number with the highest bit set. Negative numbers become 0. */
export function numberAt(block: Uint8Array, offset: number, length: number): number {
  const first = block[offset] as number;
  if (first >= 0x80) {
    if (first >= 0xc0) return 0;
    let value = first & 0x3f;
    for (let i = offset + 1; i < offset + length; i += 1)
      value = value * 256 + (block[i] as number);
    if (Number.isSafeInteger(value)) return value;
    throw unreadable("A header of the archive is damaged: a number is too large");
  }
  const text = textAt(block, offset, length).trim();
  if (!/^[0-7]*$/.test(text))
    throw unreadable("A header of the archive is damaged: a number is none");
  return text === "" ? 0 : Number.parseInt(text, 8);
}

/** Largest numbers and texts that the header's own fields hold. */
const largest = { id: 0o7777777, size: 0o77777777777, name: 100 } as const;

const types: Readonly<Record<TarEntry["kind"], string>> = {
  file: "0",
  hardlink: "1",
  symlink: "2",
  character: "3",
  block: "4",
  directory: "5",
  fifo: "6",
};

/** What of an entry its header does not hold, as records of a pax header before it. */
export function paxOf(entry: TarEntry): [Bytes, Bytes][] {
  const { path, target, uid, gid, size, xattrs } = entry;
  const records: [Bytes, Bytes][] = [];
  if (path.length > largest.name) records.push(["path", path]);
  if (target.length > largest.name) records.push(["linkpath", target]);
  if (uid > largest.id) records.push(["uid", String(uid)]);
  if (gid > largest.id) records.push(["gid", String(gid)]);
  if (size > largest.size) records.push(["size", String(size)]);
  for (const [name, value] of xattrs) records.push([`SCHILY.xattr.${name}`, value]);
  return records;
}

/** The header block of an entry. `paxOf` gives what has no room in it. */
export function encodeHeader(entry: TarEntry, type: string = types[entry.kind]): Uint8Array {
  const { path, mode, uid, gid, size, mtime, target, major, minor } = entry;
  const block = Buffer.alloc(blockBytes);
  block.write(path.slice(0, largest.name), 0, "latin1");
  const octal = (value: number, most: number, offset: number, digits: number): void => {
    const fits = value <= most ? value : 0;
    block.write(fits.toString(8).padStart(digits, "0"), offset, "latin1");
  };
  octal(mode, 0o7777, 100, 7);
  octal(uid, largest.id, 108, 7);
  octal(gid, largest.id, 116, 7);
  octal(size, largest.size, 124, 11);
  octal(mtime, largest.size, 136, 11);
  block.write(type, 156, "latin1");
  block.write(target.slice(0, largest.name), 157, "latin1");
  block.write("ustar\u000000", 257, "latin1");
  octal(major, largest.id, 329, 7);
  octal(minor, largest.id, 337, 7);
  block.fill(" ", 148, 156);
  let sum = 0;
  for (const byte of block) sum += byte;
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}
