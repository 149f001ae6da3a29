import { qcow2HeadBytes } from "./qcow2-file.ts";

/** QEMU's own default: what a guest writes is copied by so much at a time. */
const clusterBits = 16;
const clusterBytes = 2 ** clusterBits;
const entriesPerTable = clusterBytes / 8;

/** A piece of a file. */
export interface Piece {
  readonly at: number;
  readonly data: Buffer;
}

/**
 * An empty qcow2 image for a disk of `bytes`: all reads go to the backing image, which is named at
 * opening. Consists of the header, the table of reference counts, one block of reference counts,
 * and a first-level table of zeros (QEMU's docs/interop/qcow2.txt). Pure.
 */
export function emptyQcow2(bytes: number): { readonly pieces: Piece[]; readonly length: number } {
  const entries = Math.ceil(bytes / (clusterBytes * entriesPerTable));
  const clusters = 3 + Math.ceil((entries * 8) / clusterBytes);
  const header = Buffer.alloc(qcow2HeadBytes + 8);
  header.write("QFI\u00fb", "latin1");
  header.writeUInt32BE(3, 4);
  header.writeUInt32BE(clusterBits, 20);
  header.writeBigUInt64BE(BigInt(bytes), 24);
  header.writeUInt32BE(entries, 36);
  header.writeBigUInt64BE(BigInt(3 * clusterBytes), 40);
  header.writeBigUInt64BE(BigInt(clusterBytes), 48);
  header.writeUInt32BE(1, 56);
  // Counts of 2^4 bits each.
  header.writeUInt32BE(4, 96);
  // There are no extensions: the eight zeros that follow end their list.
  header.writeUInt32BE(qcow2HeadBytes, 100);
  const table = Buffer.alloc(8);
  table.writeBigUInt64BE(BigInt(2 * clusterBytes));
  const counts = Buffer.alloc(2 * clusters);
  for (let i = 0; i < clusters; i++) counts.writeUInt16BE(1, 2 * i);
  return {
    pieces: [
      { at: 0, data: header },
      { at: clusterBytes, data: table },
      { at: 2 * clusterBytes, data: counts },
    ],
    length: clusters * clusterBytes,
  };
}

/**
 * The most that such an image takes, written to from end to end: data, second tables, reference
 * counts and head. Pure.
 */
export function fullQcow2Bytes(bytes: number): number {
  const data = Math.ceil(bytes / clusterBytes);
  const tables = Math.ceil(data / entriesPerTable);
  const mapped = data + tables + emptyQcow2(bytes).length / clusterBytes;
  // A block counts half as many clusters as it has bytes; counts of the counts, and their table,
  // are a part of a thousandth.
  const counts = Math.ceil((mapped * 1.001) / (clusterBytes / 2)) + 2;
  return (mapped + counts) * clusterBytes;
}
