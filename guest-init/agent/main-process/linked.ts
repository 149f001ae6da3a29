import { decodeUtf8 } from "../../../core/utf8.ts";

/** A part of a file: fewer bytes where it ends. */
export type Piece = (at: number, length: number) => Uint8Array;

/** What an ELF file needs to be started, as it says itself. */
export interface Linked {
  /** Path of the program loader. */
  readonly interpreter: string | undefined;
  /** Names of libraries. */
  readonly libraries: readonly string[];
  /** Where they are looked for, in order. */
  readonly directories: readonly string[];
}

/** Of these a file has as many at most; more are left out. */
const most = { segments: 64, entries: 512, name: 256, line: 256 } as const;
/** e_machine of elf(5), and the directory of its libraries in Debian and its kin. */
const multiarch: Readonly<Record<number, string>> = {
  62: "x86_64-linux-gnu",
  183: "aarch64-linux-gnu",
};
/** p_type and d_tag of elf(5). */
const segment = { load: 1, dynamic: 2, interpreter: 3 } as const;
const tag = { end: 0, needed: 1, strings: 5, rpath: 15, runpath: 29 } as const;
const headerLength = 64;
const entryLength = { segment: 56, dynamic: 16 } as const;

/**
 * The words of a script's first line after `#!` that may be files; undefined for no script. Of
 * `/usr/bin/env -S` and the like, what follows is a word as any other.
 */
export function scriptOf(read: Piece): readonly string[] | undefined {
  const begin = read(0, most.line);
  if (begin[0] !== 0x23 || begin[1] !== 0x21) return undefined;
  const [line = ""] = latin1(begin.subarray(2)).split("\n", 1);
  return line.split(/[ \t]+/).filter((word) => word !== "");
}

/** What a 64-bit ELF file of this byte order needs; undefined for any other file. */
export function linksOf(path: string, read: Piece): Linked | undefined {
  const header = view(read(0, headerLength));
  if (header.byteLength < headerLength) return undefined;
  // The magic number, 64 bits, and the least significant byte first.
  if (header.getUint32(0) !== 0x7f454c46 || header.getUint16(4) !== 0x0201) return undefined;
  const segments = segmentsOf(header, read);
  const interpreter = segments.find(({ type }) => type === segment.interpreter);
  const dynamic = segments.find(({ type }) => type === segment.dynamic);
  const entries = dynamic === undefined ? [] : entriesOf(dynamic, read);
  const strings = entries.find(({ is }) => is === tag.strings)?.value ?? 0;
  const at = offsetOf(strings, segments);
  const namesOf = (...wanted: readonly number[]): readonly string[] =>
    entries.flatMap(({ is, value }) => (wanted.includes(is) ? nameAt(at + value, read) : []));
  return {
    interpreter: interpreter && nameAt(interpreter.offset, read)[0],
    libraries: namesOf(tag.needed).filter((name) => !name.includes("/")),
    directories: [
      ...namesOf(tag.runpath, tag.rpath).flatMap((all) => ownDirectories(all, path)),
      ...usualDirectories(multiarch[header.getUint16(18, true)]),
    ],
  };
}

interface Segment {
  readonly type: number;
  readonly offset: number;
  readonly address: number;
  readonly size: number;
}

function segmentsOf(header: DataView, read: Piece): readonly Segment[] {
  const count = Math.min(header.getUint16(56, true), most.segments);
  const table = view(read(u64(header, 32), count * entryLength.segment));
  return Array.from({ length: Math.floor(table.byteLength / entryLength.segment) }, (_, i) => {
    const at = i * entryLength.segment;
    return {
      type: table.getUint32(at, true),
      offset: u64(table, at + 8),
      address: u64(table, at + 16),
      size: u64(table, at + 32),
    };
  });
}

function entriesOf({ offset, size }: Segment, read: Piece): { is: number; value: number }[] {
  const table = view(read(offset, Math.min(size, most.entries * entryLength.dynamic)));
  const entries: { is: number; value: number }[] = [];
  for (let at = 0; at + entryLength.dynamic <= table.byteLength; at += entryLength.dynamic) {
    const is = u64(table, at);
    if (is === tag.end) break;
    entries.push({ is, value: u64(table, at + 8) });
  }
  return entries;
}

/** Where in the file an address of the loaded program is. */
function offsetOf(address: number, segments: readonly Segment[]): number {
  const loaded = segments.find(
    (each) =>
      each.type === segment.load && address >= each.address && address < each.address + each.size,
  );
  return loaded === undefined ? address : address - loaded.address + loaded.offset;
}

/** The name that begins at an offset; none where no end of one is near. */
function nameAt(at: number, read: Piece): readonly string[] {
  const bytes = read(at, most.name);
  const end = bytes.indexOf(0);
  return end <= 0 ? [] : [decodeUtf8(bytes.subarray(0, end))];
}

/** Directories that a file names itself: absolute ones, and those next to it (`$ORIGIN`). */
const ownDirectories = (text: string, path: string): readonly string[] =>
  text
    .split(":")
    .map((each) => each.replace(/^\$(?:ORIGIN|\{ORIGIN\})/, path.slice(0, path.lastIndexOf("/"))))
    .filter((each) => each.startsWith("/"));

const usualDirectories = (triplet: string | undefined): readonly string[] => [
  ...(triplet === undefined ? [] : [`/lib/${triplet}`, `/usr/lib/${triplet}`]),
  "/lib64",
  "/usr/lib64",
  "/lib",
  "/usr/lib",
  "/usr/local/lib",
];

const view = (bytes: Uint8Array): DataView =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** As a number: what is beyond 2^53 is in no file. */
const u64 = (from: DataView, at: number): number =>
  from.getUint32(at, true) + from.getUint32(at + 4, true) * 2 ** 32;

const latin1 = (bytes: Uint8Array): string => String.fromCharCode(...bytes);
