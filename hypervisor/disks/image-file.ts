import { type BigIntStats, closeSync, constants, fstatSync, readFileSync, readSync } from "node:fs";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { isLocked } from "../../linux/files/file-lock.ts";
import type { DiskPlan } from "../driver.ts";
import { noDisk, openChecked } from "./open-checked.ts";
import {
  partSectors,
  qcow2End,
  qcow2Extensions,
  type Qcow2Header,
  qcow2LookBytes,
  type ReadAt,
  readQcow2,
} from "./qcow2-file.ts";

/** The result of inspecting a disk's file before it is used. */
export type DiskLook =
  | {
      readonly kind: "disk";
      /** Size that a guest sees. */
      readonly bytes: number;
      readonly mark: string;
      readonly usedBy: ImageUse | undefined;
    }
  | { readonly kind: "missing"; readonly cause: unknown }
  /** `why` follows the file's name: `is empty`. */
  | { readonly kind: "unreadable"; readonly why: string; readonly cause?: unknown };

/**
 * A QEMU's current use of an image: it writes to it, or relies on the image not being written to.
 */
export type ImageUse = "writes" | "reads";

/**
 * Bytes that QEMU locks in an image that it has open (block/file-posix.c): some for what it does,
 * others for what it does not permit other programs.
 */
const locks = { writes: 101, bearsNoWriter: 201 } as const;

/**
 * Inspects a disk's current file. `check` sees the file before it is opened for reading, and may
 * throw.
 */
export function lookAtDisk(
  path: string,
  format: DiskPlan["format"],
  check: (fd: number) => void = () => {},
): DiskLook {
  let fd: number | undefined;
  try {
    fd = openChecked(path, constants.O_RDONLY, check);
  } catch (cause) {
    const { code, syscall } = cause as NodeJS.ErrnoException;
    if (syscall === undefined) throw cause;
    if (code === "ENOENT" || code === "ENOTDIR") return { kind: "missing", cause };
    return { kind: "unreadable", why: `does not open (${code})`, cause };
  }
  if (fd === undefined) return { kind: "unreadable", why: noDisk };
  try {
    return lookAtOpen(fd, format);
  } catch (cause) {
    const { code, syscall } = cause as NodeJS.ErrnoException;
    if (syscall === undefined) throw cause;
    return { kind: "unreadable", why: `cannot be read (${code})`, cause };
  } finally {
    closeSync(fd);
  }
}

/** Inspects an open regular file or block device. */
export function lookAtOpen(fd: number, format: DiskPlan["format"]): DiskLook {
  const stat = fstatSync(fd, { bigint: true });
  const fileBytes = bytesOf(stat);
  const bytes = format === "raw" ? rawBytes(fileBytes) : qcow2Bytes(fd, fileBytes);
  if (typeof bytes === "string") return { kind: "unreadable", why: bytes };
  return { kind: "disk", bytes, mark: imageMark(stat), usedBy: useOf(fd) };
}

const rawBytes = (bytes: number): number | string => {
  if (bytes === 0) return "is empty";
  return bytes % 512 === 0 ? bytes : partSectors;
};

function qcow2Bytes(fd: number, fileBytes: number): number | string {
  const read = readerOf(fd);
  const header = qcow2Head(read, fileBytes);
  if (typeof header === "string") return header;
  return qcow2End(header, fileBytes, read) ?? header.bytes;
}

/** The header of a qcow2 image, or what is wrong with it. */
function qcow2Head(read: ReadAt, fileBytes: number): Qcow2Header | string {
  const header = readQcow2(read(0, qcow2LookBytes), fileBytes);
  return typeof header === "string" ? header : (qcow2Extensions(header, read) ?? header);
}

const readerOf =
  (fd: number): ReadAt =>
  (at, bytes) => {
    const buffer = Buffer.alloc(bytes);
    return buffer.subarray(0, readSync(fd, buffer, 0, bytes, at));
  };

/**
 * Says what is wrong with a disk that is about to be given to QEMU, by its open file: it may be
 * another one than was inspected. An image that a QEMU wrote to when it was killed is good here,
 * although some of what it counts may be missing.
 */
export function openFault(fd: number, format: DiskPlan["format"]): string | undefined {
  const fileBytes = bytesOf(fstatSync(fd, { bigint: true }));
  const found = format === "raw" ? rawBytes(fileBytes) : qcow2Head(readerOf(fd), fileBytes);
  return typeof found === "string" ? found : undefined;
}

/**
 * Differs once an image has been written to; for a device, which keeps no time, once it is of
 * another size.
 */
export const imageMark = (stat: BigIntStats): string =>
  stat.isBlockDevice() ? `device ${bytesOf(stat)}` : `file ${stat.size} ${stat.mtimeNs}`;

function bytesOf({ rdev, size }: BigIntStats): number {
  return size === 0n && rdev !== 0n ? deviceBytes(rdev) : Number(size);
}

/** The kernel reports a device's size in sectors of 512 bytes (sysfs; makedev(3) of the number). */
function deviceBytes(device: bigint): number {
  const major = ((device >> 8n) & 0xfffn) | ((device >> 32n) & ~0xfffn);
  const minor = (device & 0xffn) | ((device >> 12n) & ~0xffn);
  try {
    return Number(readFileSync(`/sys/dev/block/${major}:${minor}/size`, "latin1")) * 512;
  } catch {
    return 0;
  }
}

function useOf(fd: number): ImageUse | undefined {
  if (isLocked(fd, locks.writes)) return "writes";
  return isLocked(fd, locks.bearsNoWriter) ? "reads" : undefined;
}

/**
 * The refusal of an image whose present use excludes the use asked for. `by` is the pod that uses
 * it, or the node itself when it has no name; absent for a program that podnet does not know.
 */
export function imageInUse(
  path: string,
  field: string,
  use: ImageUse,
  by?: { readonly pod?: string },
): PodnetError {
  const node = "the node, as its default image,";
  const who =
    by === undefined ? "another program" : by.pod === undefined ? node : `pod "${by.pod}"`;
  const how = use === "writes" ? "writes to" : "reads";
  return new PodnetError("IMAGE_IN_USE", `Image "${printable(path)}" is in use: ${who} ${how} it`, {
    field,
    hint:
      use === "writes"
        ? "Only one pod may use a write-through image: delete that pod, or take a copy of the image"
        : "Leave write_through out, or take a copy of the image",
    details: { path, ...(by?.pod === undefined ? {} : { holder: by.pod }) },
  });
}
