/** As much of a kernel's file as its headers take. */
export const kernelHeadBytes = 4096;

/** What is wrong with a kernel by its first bytes and its size; undefined when QEMU may try it. */
export function kernelFault(head: Buffer, size: number): string | undefined {
  if (head.subarray(0, 4).toString("latin1") === "\u007fELF")
    return elfEnd(head) > size ? cutShort : undefined;
  // Documentation/arch/x86/boot.rst: the magic of a bzImage's set-up header.
  if (head.subarray(0x202, 0x206).toString("latin1") === "HdrS")
    return bzImageEnd(head) > size ? cutShort : undefined;
  return "is neither an ELF vmlinux nor a bzImage";
}

const cutShort = "is cut short: its headers tell of more than there is";
const elfHeaderBytes = 64;
const class64 = 2;

/** Where the last segment of a 64-bit ELF file ends, as far as `head` tells. */
function elfEnd(head: Buffer): number {
  if (head[4] !== class64) return 0;
  if (head.length < elfHeaderBytes) return elfHeaderBytes;
  const tableAt = Number(head.readBigUInt64LE(32));
  const entryBytes = head.readUInt16LE(54);
  const entries = head.readUInt16LE(56);
  const ends = [tableAt + entries * entryBytes];
  for (let i = 0; i < entries; i++) {
    const at = tableAt + i * entryBytes;
    if (at + 40 > head.length) break;
    ends.push(Number(head.readBigUInt64LE(at + 8) + head.readBigUInt64LE(at + 32)));
  }
  return Math.max(...ends);
}

/** Boot sector, set-up sectors, then `syssize` paragraphs of 16 bytes; a signature may follow. */
function bzImageEnd(head: Buffer): number {
  const setupSectors = head[0x1f1] || 4;
  return (setupSectors + 1) * 512 + head.readUInt32LE(0x1f4) * 16;
}
