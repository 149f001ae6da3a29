import { unreadable } from "../unreadable.ts";
import type { ByteSource } from "./byte-source.ts";
import { blockBytes, paddingOf } from "./entry.ts";
import { type Header, numberAt, textAt } from "./header.ts";
import type { PaxRecords } from "./pax.ts";

/** Where the bytes of a file with holes belong; zeros lie between them. */
export interface SparseMap {
  readonly size: number;
  readonly data: readonly { readonly offset: number; readonly bytes: number }[];
}

/** Ranges that one file may have. */
const mostRanges = 100_000;

const damaged = () => unreadable("A file with holes is damaged in the archive");

/**
 * The holes of a file: GNU tar's type `S`, or its formats 0.1 and 1.0 in pax records (GNU tar
 * manual, "Storing Sparse Files"). `stored` counts the bytes of the body, and so what of it is left
 * after a map that lies in front. Undefined for a file without holes.
 */
export async function readSparse(
  header: Header,
  pax: PaxRecords,
  source: ByteSource,
  stored: number,
): Promise<{ readonly map: SparseMap; readonly stored: number } | undefined> {
  const major = pax.get("GNU.sparse.major");
  const size = decimal(pax.get("GNU.sparse.realsize") ?? pax.get("GNU.sparse.size") ?? "0");
  if (header.type === "S")
    return { map: checked(numberAt(header.block, 483, 12), await oldGnu(header, source)), stored };
  if (major === "1") {
    const before = source.position;
    const numbers = await mapInFront(source, stored);
    return { map: checked(size, numbers), stored: stored - (source.position - before) };
  }
  const list = pax.get("GNU.sparse.map");
  if (list !== undefined)
    return { map: checked(size, list === "" ? [] : list.split(",").map(decimal)), stored };
  if (major !== undefined || pax.has("GNU.sparse.size"))
    throw unreadable(
      "A file with holes has a format that podnet does not read",
      "Make the archive with tar --sparse-version=1.0, or without --sparse",
    );
  return undefined;
}

/** Ranges in the header and in the blocks that follow it. */
async function oldGnu({ block }: Header, source: ByteSource): Promise<number[]> {
  const numbers: number[] = [];
  const take = (from: Uint8Array, begin: number, ranges: number): void => {
    for (let i = 0; i < ranges * 2; i += 1) {
      const offset = begin + i * 12;
      if (textAt(from, offset, 12) === "" && (from[offset] ?? 0) === 0) return;
      numbers.push(numberAt(from, offset, 12));
    }
  };
  take(block, 386, 4);
  for (let more = block[482] !== 0; more; ) {
    const next = await source.exactly(blockBytes);
    if (next === undefined || numbers.length > mostRanges * 2) throw damaged();
    take(next, 0, 21);
    more = next[504] !== 0;
  }
  return numbers;
}

/** Lines of decimals at the begin of the body, filled up to whole blocks: a count, then ranges. */
async function mapInFront(source: ByteSource, stored: number): Promise<number[]> {
  let [text, wanted] = ["", 1];
  const numbers: number[] = [];
  for (let left = stored; numbers.length < wanted; left -= blockBytes) {
    const block = left < blockBytes ? undefined : await source.exactly(blockBytes);
    if (block === undefined) throw damaged();
    const lines = (text + textAt(block, 0, blockBytes)).split("\n");
    text = lines.pop() ?? "";
    numbers.push(...lines.map(decimal));
    wanted = 1 + 2 * (numbers[0] ?? 0);
    if (wanted > 1 + 2 * mostRanges) throw damaged();
  }
  return numbers.slice(1, wanted);
}

function decimal(text: string): number {
  if (!/^[0-9]{1,15}$/.test(text)) throw damaged();
  return Number(text);
}

/** Ranges in order, within the file. */
function checked(size: number, numbers: readonly number[]): SparseMap {
  if (numbers.length % 2 !== 0 || numbers.length > mostRanges * 2) throw damaged();
  const data: { offset: number; bytes: number }[] = [];
  let end = 0;
  for (let i = 0; i < numbers.length; i += 2) {
    const [offset = 0, bytes = 0] = numbers.slice(i, i + 2);
    if (offset < end || offset + bytes > size) throw damaged();
    end = offset + bytes;
    if (bytes > 0) data.push({ offset, bytes });
  }
  return { size, data };
}

const zeros = new Uint8Array(2 ** 16);

/** The bytes of a file with its holes. */
export async function* filled(
  { size, data }: SparseMap,
  source: ByteSource,
): AsyncGenerator<Uint8Array> {
  let at = 0;
  for (const { offset, bytes } of [...data, { offset: size, bytes: 0 }]) {
    for (; at < offset; at += Math.min(zeros.length, offset - at))
      yield zeros.subarray(0, offset - at);
    for (let left = bytes; left > 0; ) {
      const part = await source.some(left);
      yield part;
      left -= part.length;
    }
    at += bytes;
  }
}

/** Bytes of a body with ranges, which must be as many as it has. */
export function checkStored({ data }: SparseMap, stored: number): void {
  const bytes = data.reduce((sum, range) => sum + range.bytes, 0);
  if (bytes !== stored && bytes + paddingOf(bytes) !== stored) throw damaged();
}
