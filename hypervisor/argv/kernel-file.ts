import type { Architecture } from "../architecture.ts";

/** As much of a kernel's file as its headers take. */
export const kernelHeadBytes = 4096;

/**
 * What is wrong with a kernel for machines of an architecture, by its first bytes and its size;
 * undefined when QEMU may try it.
 */
export function kernelFault(head: Buffer, size: number, arch: Architecture): string | undefined {
  const kernel = recognise(head);
  if (kernel === undefined) return unknown[arch];
  if (kernel.arch !== arch) return `is a kernel for ${kernel.arch}, and machines are of ${arch}`;
  return kernel.end(head) > size ? cutShort : undefined;
}

const unknown: Readonly<Record<Architecture, string>> = {
  x86_64: "is neither an ELF vmlinux nor a bzImage",
  arm64: "is no Image of arm64, uncompressed, as machines of arm64 boot it",
};
const cutShort = "is cut short: its headers report more than there is";

/** A form of kernel. */
interface KernelForm {
  readonly arch: Architecture;
  /** Where the file ends, according to its first bytes. */
  end(head: Buffer): number;
}

function recognise(head: Buffer): KernelForm | undefined {
  const has = (at: number, magic: string): boolean =>
    head.subarray(at, at + magic.length).toString("latin1") === magic;
  // Documentation/arch/arm64/booting.rst
  if (has(0x38, "ARM\u0064")) return { arch: "arm64", end: peEnd };
  // An ELF vmlinux of arm64 has no header with its load address.
  if (has(0, "\u007fELF")) return has(18, elfOfArm64) ? undefined : { arch: "x86_64", end: elfEnd };
  // Documentation/arch/x86/boot.rst: the magic of a bzImage's set-up header.
  return has(0x202, "HdrS") ? { arch: "x86_64", end: bzImageEnd } : undefined;
}

/** EM_AARCH64, 183. */
const elfOfArm64 = "\u00b7\u0000";
const elfHeaderBytes = 64;
const class64 = 2;

/** Where the last segment of a 64-bit ELF file ends, according to `head`. */
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

/**
 * Where the last section of a PE file ends, which an Image is that firmware could start: 0 of any
 * other.
 */
function peEnd(head: Buffer): number {
  if (head.length < 0x40 || head.toString("latin1", 0, 2) !== "MZ") return 0;
  const at = head.readUInt32LE(0x3c);
  if (at + 24 > head.length || head.toString("latin1", at, at + 4) !== "PE\0\0") return 0;
  const table = at + 24 + head.readUInt16LE(at + 20);
  let end = 0;
  for (let i = 0; i < head.readUInt16LE(at + 6); i++) {
    const section = table + 40 * i;
    if (section + 24 > head.length) break;
    // Its bytes in the file, and where they begin.
    end = Math.max(end, head.readUInt32LE(section + 16) + head.readUInt32LE(section + 20));
  }
  return end;
}
