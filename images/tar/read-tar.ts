import { quoted, unreadable } from "../unreadable.ts";
import type { ByteSource } from "./byte-source.ts";
import { blockBytes, type Bytes, paddingOf, type TarEntry } from "./entry.ts";
import { decodeHeader, type Header } from "./header.ts";
import { decodePax, type PaxRecords } from "./pax.ts";
import { checkStored, filled, readSparse } from "./sparse.ts";

/** An entry, and its bytes. They are read before the next entry is asked for, or passed over. */
export interface FoundEntry {
  readonly entry: TarEntry;
  /** Where the bytes begin in the source. */
  readonly position: number;
  readonly body: () => AsyncIterable<Uint8Array>;
}

const kinds: Readonly<Record<string, TarEntry["kind"]>> = {
  "\0": "file",
  "0": "file",
  "1": "hardlink",
  "2": "symlink",
  "3": "character",
  "4": "block",
  "5": "directory",
  "6": "fifo",
  // "Contiguous" files, and GNU tar's with holes.
  "7": "file",
  S: "file",
};

/** Bytes that headers of one entry, its long names and attributes, may have. */
const mostHeaderBytes = 2 ** 20;
const mostPathBytes = 4096;

/**
 * The entries of a tar archive: ustar, pax (with extended attributes as `SCHILY.xattr.`) and GNU.
 * Throws `IMAGE_UNREADABLE` for what is damaged, for types that are none of a file system, and for
 * headers beyond the limits.
 */
export async function* readTar(source: ByteSource): AsyncGenerator<FoundEntry> {
  const everywhere: PaxRecords = new Map();
  let own: PaxRecords = new Map();
  for (let headerBytes = 0; ; ) {
    const block = await source.exactly(blockBytes);
    // (An archive without zeros at its end is whole, too: many programs take it.)
    const header = block === undefined ? undefined : decodeHeader(block);
    if (header === undefined) return;
    const { type, size } = header;
    if (["x", "g", "L", "K"].includes(type)) {
      headerBytes += size;
      if (headerBytes > mostHeaderBytes) throw unreadable("Headers of the archive are too long");
      const text = await source.exactly(size);
      if (text === undefined && size > 0) throw unreadable("The archive ends too early");
      const bytes = text ?? new Uint8Array(0);
      await source.skip(paddingOf(size));
      if (type === "x") decodePax(bytes, own);
      else if (type === "g") decodePax(bytes, everywhere);
      else own.set(type === "L" ? "path" : "linkpath", untilZero(bytes));
      continue;
    }
    const pax = new Map([...everywhere, ...own]);
    own = new Map();
    headerBytes = 0;
    yield* oneEntry(header, pax, source);
  }
}

async function* oneEntry(
  header: Header,
  pax: PaxRecords,
  source: ByteSource,
): AsyncGenerator<FoundEntry> {
  const kind = kindOf(header, pax);
  // Headers of links and directories may have a size without a body.
  const inBody = kind === "file" ? (numberOf(pax, "size") ?? header.size) : 0;
  const begin = source.position;
  const sparse = kind === "file" ? await readSparse(header, pax, source, inBody) : undefined;
  const stored = sparse?.stored ?? inBody;
  if (sparse !== undefined) checkStored(sparse.map, stored);
  const entry = entryOf(header, pax, kind, sparse?.map.size ?? stored);
  const end = source.position + stored;
  yield {
    entry,
    position: begin,
    body: () => (sparse === undefined ? plain(source, stored) : filled(sparse.map, source)),
  };
  await source.skip(end - source.position + paddingOf(inBody));
}

function kindOf({ type, path }: Header, pax: PaxRecords): TarEntry["kind"] {
  const kind = kinds[type];
  // A directory of archives from before there was a type for it.
  if (kind === "file" && (pax.get("path") ?? path).endsWith("/")) return "directory";
  if (kind !== undefined) return kind;
  throw unreadable(`The archive has an entry of an unknown type, ${quoted(type)}`);
}

function entryOf(header: Header, pax: PaxRecords, kind: TarEntry["kind"], size: number): TarEntry {
  const path = pax.get("GNU.sparse.name") ?? pax.get("path") ?? header.path;
  const target = pax.get("linkpath") ?? header.target;
  for (const text of [path, target])
    if (text.length > mostPathBytes || text.includes("\0"))
      throw unreadable(`The archive has a path that no kernel takes: ${quoted(text.slice(0, 60))}`);
  return {
    path,
    kind,
    mode: header.mode,
    uid: numberOf(pax, "uid") ?? header.uid,
    gid: numberOf(pax, "gid") ?? header.gid,
    mtime: numberOf(pax, "mtime") ?? header.mtime,
    size,
    target: kind === "symlink" || kind === "hardlink" ? target : "",
    major: header.major,
    minor: header.minor,
    xattrs: xattrsOf(pax),
  };
}

const xattrPrefix = "SCHILY.xattr.";

function xattrsOf(pax: PaxRecords): ReadonlyMap<Bytes, Bytes> {
  const found = new Map<Bytes, Bytes>();
  for (const [key, value] of pax)
    if (key.startsWith(xattrPrefix)) found.set(key.slice(xattrPrefix.length), value);
  return found;
}

/** A decimal, without its fraction; negative ones become 0. */
function numberOf(pax: PaxRecords, key: string): number | undefined {
  const text = pax.get(key);
  if (text === undefined || text === "") return undefined;
  if (!/^-?[0-9]{1,15}(?:\.[0-9]*)?$/.test(text))
    throw unreadable(`A header of the archive is damaged: its ${key} is ${quoted(text)}`);
  return Math.max(0, Math.trunc(Number(text)));
}

function untilZero(bytes: Uint8Array): Bytes {
  const text = Buffer.from(bytes).toString("latin1");
  const end = text.indexOf("\0");
  return end < 0 ? text : text.slice(0, end);
}

async function* plain(source: ByteSource, bytes: number): AsyncGenerator<Uint8Array> {
  for (let left = bytes; left > 0; ) {
    const part = await source.some(left);
    yield part;
    left -= part.length;
  }
}
