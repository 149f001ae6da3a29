/** The header's fixed part, bytes. */
export const qcow2HeadBytes = 104;
/** As much of an image as `readQcow2` looks at, bytes. */
export const qcow2LookBytes = 112;

/** Largest disk: beyond it the first table of an overlay takes more than QEMU reads (32 MiB). */
const mostBytes = 2 ** 51;
/** Largest table of reference counts that QEMU reads. */
const mostTableBytes = 8 << 20;
/** Entries of the largest first-level table that QEMU reads: 32 MiB of 8 bytes each. */
const mostEntries = 1 << 22;
/** Internal snapshots that QEMU reads. */
const mostSnapshots = 65_536;
const oldHeadBytes = 72;
const sector = 512;

/** Bits of what an image needs its reader to know (QEMU's docs/interop/qcow2.txt). */
const corrupt = 2n;
const externalData = 4n;
const compressionType = 8n;
const extendedEntries = 16n;
const known = 31n;
/** One of the bits that a reader may ignore: the data lies in another file, in raw format. */
const rawExternalData = 2n;

/** An entry of the snapshots' table takes as much or more, bytes. */
const leastSnapshotBytes = 40;

const cutShort = "is cut short: its header reports more than there is";

/** The fields of a qcow2 image that matter before QEMU opens it. */
export interface Qcow2Header {
  /** As large as the disk is to a guest. */
  readonly bytes: number;
  readonly clusterBytes: number;
  /** Where header extensions begin, bytes. */
  readonly headerBytes: number;
  /** Where the reference counts' table is, whose entries are where the counts are. */
  readonly counts: { readonly at: number; readonly bytes: number; readonly bitsEach: number };
}

/**
 * Reads the header of a qcow2 image in a file of `fileBytes`; a string says why it is invalid.
 * Other files that the image names are never opened, because its author chose their names.
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
  const leastBits = (features & extendedEntries) === 0n ? 9 : 14;
  if (clusterBits < leastBits || clusterBits > 21)
    return "has clusters of a size that is not known";
  const clusterBytes = 2 ** clusterBits;
  const headerBytes = version === 3 ? head.readUInt32BE(100) : oldHeadBytes;
  if (version === 3) {
    const fault = laterFault(head, features, clusterBytes);
    if (fault !== undefined) return fault;
  }
  const bytes = Number(head.readBigUInt64BE(24));
  if (bytes === 0) return "is a disk of no size";
  if (bytes > mostBytes) return "is a disk of more than 2 PiB";
  if (bytes % sector !== 0) return partSectors;
  const entryBytes = (features & extendedEntries) === 0n ? 8 : 16;
  const entries = head.readUInt32BE(36);
  if (entries > mostEntries) return "has a table too large to be read";
  const tables = [40, 48, 64].map((at) => head.readBigUInt64BE(at));
  if (tables.some((at) => at % BigInt(clusterBytes) !== 0n || at >> 63n !== 0n))
    return "has a table where none can be";
  if (head.readUInt32BE(60) > mostSnapshots) return "has too many snapshots";
  if (entries < Math.ceil(bytes / (clusterBytes * (clusterBytes / entryBytes))))
    return "has a table too small for its size";
  if (Number(head.readBigUInt64BE(40)) + entries * 8 > fileBytes) return cutShort;
  const snapshotBytes = head.readUInt32BE(60) * leastSnapshotBytes;
  if (snapshotBytes > 0 && Number(head.readBigUInt64BE(64)) + snapshotBytes > fileBytes)
    return cutShort;
  const order = version === 3 ? head.readUInt32BE(96) : 4;
  if (order > 6) return "has reference counts of a size that is not known";
  const at = Number(head.readBigUInt64BE(48));
  const tableBytes = head.readUInt32BE(56) * clusterBytes;
  if (tableBytes === 0 || tableBytes > mostTableBytes)
    return "has a table of reference counts of a size that is not known";
  if (at + tableBytes > fileBytes) return cutShort;
  return {
    bytes,
    clusterBytes,
    headerBytes,
    counts: { at, bytes: tableBytes, bitsEach: 2 ** order },
  };
}

/** Why the fields that version 3 added are invalid; `features` are those its reader must know. */
function laterFault(head: Buffer, features: bigint, clusterBytes: number): string | undefined {
  const headerBytes = head.readUInt32BE(100);
  if (headerBytes < qcow2HeadBytes || headerBytes > clusterBytes)
    return "has a header of a length that cannot be";
  // The byte behind the fixed header: 0 is zlib, which is said by the bit's absence, 1 is zstd.
  const type = headerBytes > qcow2HeadBytes ? (head[qcow2HeadBytes] ?? 0) : 0;
  if (type > 1 || (type === 1) !== ((features & compressionType) !== 0n))
    return "is compressed in a way that is not known";
  if ((head.readBigUInt64BE(88) & rawExternalData) !== 0n)
    return "has its data in another file, which a machine does not see";
  return undefined;
}

/** Of a disk in any format. */
export const partSectors = "does not consist of whole sectors of 512 bytes";

/** Numbers of header extensions (QEMU's docs/interop/qcow2.txt). */
const extensions = { end: 0, encryption: 0x0537be77, bitmaps: 0x23852875 } as const;
const bitmapsBytes = 24;
/** Bit of what a reader may ignore: the bitmaps' extension is valid. */
const hasBitmaps = 1n;

/**
 * Says what is wrong with the extensions between an image's header and the end of its first
 * cluster; QEMU reads all of them before it opens the image.
 */
export function qcow2Extensions(
  { clusterBytes, headerBytes }: Qcow2Header,
  read: ReadAt,
): string | undefined {
  const area = read(0, clusterBytes);
  const withBitmaps = headerBytes > oldHeadBytes && (area.readBigUInt64BE(88) & hasBitmaps) !== 0n;
  for (let at = headerBytes; at < clusterBytes; ) {
    if (at + 8 > area.length) return cutShort;
    const kind = area.readUInt32BE(at);
    const bytes = area.readUInt32BE(at + 4);
    if (bytes > clusterBytes - at - 8) return "has a header extension that does not fit";
    if (kind === extensions.end) return undefined;
    if (kind === extensions.encryption) return "is encrypted";
    if (kind === extensions.bitmaps && withBitmaps && bytes !== bitmapsBytes)
      return "has bitmaps that cannot be read";
    at += 8 + Math.ceil(bytes / 8) * 8;
  }
  return undefined;
}

/** Reads from a file, at most as much as there is. */
export type ReadAt = (at: number, bytes: number) => Buffer;

const endMissing = "is cut short: some of what it uses lies beyond its end";

/**
 * Blocks of reference counts that are looked at from the end: what was freed there counts nothing.
 */
const mostBlocks = 16;

/**
 * Says what is wrong when a cluster that is in use lies beyond the file's end, as after a copy that
 * was broken off; by the reference counts, which costs two reads.
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
