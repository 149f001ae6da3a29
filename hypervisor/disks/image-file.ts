import {
  type BigIntStats,
  closeSync,
  constants,
  fstatSync,
  openSync,
  readFileSync,
  readSync,
} from "node:fs";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { isLocked } from "../../linux/files/file-lock.ts";
import type { DiskPlan } from "../driver.ts";
import { partSectors, qcow2End, qcow2Extensions, qcow2LookBytes, readQcow2 } from "./qcow2-file.ts";

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

/** Inspects a disk's current file. `check` sees the open file first and may throw. */
export function lookAtDisk(
  path: string,
  format: DiskPlan["format"],
  check: (fd: number) => void = () => {},
): DiskLook {
  let fd: number;
  try {
    // Without O_NONBLOCK the open of a named pipe would wait for its writer.
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? "unknown";
    if (code === "ENOENT" || code === "ENOTDIR") return { kind: "missing", cause };
    return { kind: "unreadable", why: `does not open (${code})`, cause };
  }
  try {
    check(fd);
    return lookAtOpen(fd, format);
  } catch (cause) {
    const { code, syscall } = cause as NodeJS.ErrnoException;
    if (syscall === undefined) throw cause;
    return { kind: "unreadable", why: `cannot be read (${code})`, cause };
  } finally {
    closeSync(fd);
  }
}

function lookAtOpen(fd: number, format: DiskPlan["format"]): DiskLook {
  const stat = fstatSync(fd, { bigint: true });
  if (!stat.isFile() && !stat.isBlockDevice())
    return { kind: "unreadable", why: "is no regular file and no block device" };
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
  const read = (at: number, bytes: number): Buffer => {
    const buffer = Buffer.alloc(bytes);
    return buffer.subarray(0, readSync(fd, buffer, 0, bytes, at));
  };
  const header = readQcow2(read(0, qcow2LookBytes), fileBytes);
  if (typeof header === "string") return header;
  return qcow2Extensions(header, read) ?? qcow2End(header, fileBytes, read) ?? header.bytes;
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
