/** As much of a qcow2 image as its fixed header takes. */
export const qcow2HeadBytes = 104;

/** Largest disk: beyond it the first table of an overlay takes more than QEMU reads (32 MiB). */
const mostBytes = 2 ** 51;
/** Largest table of reference counts that QEMU reads. */
const mostTableBytes = 8 << 20;
const oldHeadBytes = 72;
const sector = 512;

/** Bits of what an image needs its reader to know (QEMU's docs/interop/qcow2.txt). */
const corrupt = 2n;
const externalData = 4n;
const extendedEntries = 16n;
const known = 31n;

const cutShort = "is cut short: its header tells of more than there is";

/** What a qcow2 image says of itself, as far as it matters before QEMU opens it. */
export interface Qcow2Header {
  /** As large as the disk is to a guest. */
  readonly bytes: number;
  readonly clusterBytes: number;
  /** Where the reference counts' table is, whose entries are where the counts are. */
  readonly counts: { readonly at: number; readonly bytes: number; readonly bitsEach: number };
}

/**
 * Reads the header of a qcow2 image in a file of `fileBytes`; an answer of text says what is wrong with it. Other files
 * that it names are never opened: whoever wrote the image chose their names.
 */
export function readQcow2(head: Buffer, fileBytes: number): Qcow2Header | string {
  if (head.subarray(0, 4).toString("latin1") !== "QFI\u00fb") return "is not a qcow2 image";
  if (head.length < oldHeadBytes) return cutShort;
  const version = head.readUInt32BE(4);
  if (version !== 2 && version !== 3) return `is qcow2 of version ${version}, which is not known`;
  if (version === 3 && head.length < qcow2HeadBytes) return cutShort;
  if (head.readBigUInt64BE(8) !== 0n) return "has a backing file, which a machine does not see";
  if (head.readUInt32BE(32) !== 0) return "is encrypted";
  const features = version === 3 ? head.readBigUInt64BE(72) : 0n;
  if ((features & externalData) !== 0n)
    return "has its data in another file, which a machine does not see";
  if ((features & corrupt) !== 0n) return "is marked as corrupt (qemu-img check -r all)";
  if (features > known) return "needs a feature of qcow2 that is not known";
  const clusterBits = head.readUInt32BE(20);
  if (clusterBits < 9 || clusterBits > 21) return "has clusters of a size that is not known";
  const clusterBytes = 2 ** clusterBits;
  const bytes = Number(head.readBigUInt64BE(24));
  if (bytes === 0) return "is a disk of no size";
  if (bytes > mostBytes) return "is a disk of more than 2 PiB";
  if (bytes % sector !== 0) return partSectors;
  const entryBytes = (features & extendedEntries) === 0n ? 8 : 16;
  const entries = head.readUInt32BE(36);
  if (entries < Math.ceil(bytes / (clusterBytes * (clusterBytes / entryBytes))))
    return "has a table too small for its size";
  if (Number(head.readBigUInt64BE(40)) + entries * 8 > fileBytes) return cutShort;
  const order = version === 3 ? head.readUInt32BE(96) : 4;
  if (order > 6) return "has reference counts of a size that is not known";
  const at = Number(head.readBigUInt64BE(48));
  const tableBytes = head.readUInt32BE(56) * clusterBytes;
  if (tableBytes === 0 || tableBytes > mostTableBytes)
    return "has a table of reference counts of a size that is not known";
  if (at + tableBytes > fileBytes) return cutShort;
  return { bytes, clusterBytes, counts: { at, bytes: tableBytes, bitsEach: 2 ** order } };
}

/** Of a disk in any format. */
export const partSectors = "does not consist of whole sectors of 512 bytes";

/** Reads from a file, at most as much as there is. */
export type ReadAt = (at: number, bytes: number) => Buffer;

const endMissing = "is cut short: some of what it uses lies beyond its end";

/** Blocks of reference counts that are looked at from the end: what was freed there counts nothing. */
const mostBlocks = 16;

/**
 * Says what is wrong when a cluster that is in use lies beyond the file's end, as after a copy that was broken off; by the
 * reference counts, which costs two reads.
 */
export function qcow2End(
  { clusterBytes, counts }: Qcow2Header,
  fileBytes: number,
  read: ReadAt,
): string | undefined {
  const table = read(counts.at, counts.bytes);
  const perBlock = (clusterBytes * 8) / counts.bitsEach;
  let looks = mostBlocks;
  for (let i = Math.floor(table.length / 8) - 1; i >= 0 && looks > 0; i--) {
    const at = Number(table.readBigUInt64BE(i * 8));
    if (at === 0) continue;
    if (at >= fileBytes) return endMissing;
    const last = lastUsed(read(at, clusterBytes));
    if (last >= 0) {
      const cluster = i * perBlock + Math.floor((last * 8) / counts.bitsEach);
      return cluster * clusterBytes >= fileBytes ? endMissing : undefined;
    }
    looks--;
  }
  return undefined;
}

/** The last byte that is not zero; -1 when all are. */
function lastUsed(block: Buffer): number {
  for (let at = block.length - 1; at >= 0; at--) if (block[at] !== 0) return at;
  return -1;
}
