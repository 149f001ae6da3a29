import { printable } from "../../core/names.ts";
import { invalid } from "../fields.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import type { BootSpec } from "../pod-spec.ts";

/** PATH_MAX without its end. */
const longestPath = 4095;

/** A path on the host; whether something is there is for the daemon to say. */
export function absolutePath(path: string, field: string): string {
  if (!path.startsWith("/") || path.length > longestPath || /\p{Cc}/u.test(path)) {
    throw invalid(
      field,
      `"${printable(path)}" is not an absolute path`,
      "Write the file's full path on the host, without control characters",
    );
  }
  return path;
}

/** What the host boots a machine from, or `none` of it. */
export const pathOrNone = (path: string, field: string): string =>
  path === "none" ? path : absolutePath(path, field);

/** Empty: raw. */
export function diskFormat(text: string, field: string): BootSpec["disks"][number]["format"] {
  const format = text === "" ? "raw" : text;
  if (format === "raw" || format === "qcow2") return format;
  throw invalid(field, `Disk format "${printable(format)}" is not known`, "Use raw or qcow2");
}

export function validateDisk(disk: wire.Disk, field: string): BootSpec["disks"][number] {
  const { readOnly, writeThrough, maxMib } = disk;
  const format = diskFormat(disk.format, `${field}.format`);
  if (readOnly && writeThrough) {
    throw invalid(
      `${field}.write_through`,
      "A disk that is read only is not written through",
      "Give read_only or write_through",
    );
  }
  if (maxMib !== undefined && (readOnly || writeThrough)) {
    throw invalid(
      `${field}.max_mib`,
      "Nothing is written to a file of the pod's own",
      "Leave max_mib out: it bounds what is written alongside the image",
    );
  }
  if (maxMib === 0)
    throw invalid(
      `${field}.max_mib`,
      "A pod's own file has 1 MiB at least",
      "Give more, or leave it out",
    );
  return {
    path: absolutePath(disk.path, `${field}.path`),
    format,
    readOnly,
    ...(writeThrough ? { writeThrough } : {}),
    ...(maxMib === undefined ? {} : { maxMib }),
  };
}

/**
 * Refuses what goes with a kernel of the host's, where the first disk starts by itself; and that
 * without a disk.
 */
export function checkForm({ kernel, initrd, cmdline, disks }: BootSpec): void {
  if (kernel !== "none") return;
  if (disks.length === 0)
    throw invalid(
      "boot.disks",
      "Without a kernel there is nothing to boot",
      "Give a disk that boots",
    );
  if (initrd !== undefined && initrd !== "none")
    throw invalid(
      "boot.initrd",
      "An initramfs goes with a kernel",
      "Leave it out, or give a kernel",
    );
  if (cmdline !== "")
    throw invalid(
      "boot.cmdline",
      "The disk's own bootloader decides on the kernel's words",
      "Leave it out, or give a kernel",
    );
}
