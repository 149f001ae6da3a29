import { printable } from "../../core/names.ts";
import { checkCount, invalid } from "../fields.ts";
import type { AddDiskRequest } from "../gen/podnet/v1/pod_service_pb.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import type { DataDiskSpec } from "../pod-spec.ts";
import { absolutePath, diskFormat } from "./disks.ts";

/** Slots of a machine that are for them. */
export const maxDataDisks = 7;

/** A serial number of virtio has 20 bytes; QEMU's ids take no other characters. */
const namePattern = /^[a-z0-9](?:[a-z0-9-]{0,18}[a-z0-9])?$/;
/** Serial numbers of the disks that a machine boots with. */
const ofBoot = /^(?:disk[0-9]+|seed)$/;
/** Of a disk: 2 PiB, as of images. */
export const mostDiskMib = 2 ** 31;

export function parseDiskName(text: string, field = "name"): string {
  if (!namePattern.test(text))
    throw invalid(
      field,
      `Disk name "${printable(text)}" is not usable`,
      "Use 1 to 20 characters from a-z, 0-9 and -, and neither start nor end with -",
    );
  if (ofBoot.test(text))
    throw invalid(
      field,
      `Disk name "${text}" is that of a disk that a pod boots with`,
      "Use another name",
    );
  return text;
}

/** Checks a disk that is to be plugged in; `of` is the message's own field. */
function validateDataDisk(disk: wire.DataDisk, of: string): DataDiskSpec {
  const { name, file, format, sizeMib, readOnly } = disk;
  const named = name === "" ? {} : { name: parseDiskName(name, `${of}.name`) };
  if ((file === "") === (sizeMib === 0))
    throw invalid(
      file === "" ? `${of}.file` : `${of}.size_mib`,
      file === "" ? "There is no disk to add" : "A disk is a file, or one that podnetd makes",
      "Give file or size_mib",
    );
  if (file !== "") {
    const path = absolutePath(file, `${of}.file`);
    return { ...named, file: { path, format: diskFormat(format, `${of}.format`) }, readOnly };
  }
  if (format !== "")
    throw invalid(`${of}.format`, "podnetd makes raw disks", "Leave format out, or give file");
  if (readOnly)
    throw invalid(`${of}.read_only`, "An empty disk cannot be read only", "Leave read_only out");
  if (sizeMib > mostDiskMib)
    throw invalid(
      `${of}.size_mib`,
      `${sizeMib} MiB are too many`,
      `Ask for ${mostDiskMib} at most`,
    );
  return { ...named, sizeMib, readOnly };
}

export function validateAddDisk({ disk }: AddDiskRequest): DataDiskSpec {
  if (disk !== undefined) return validateDataDisk(disk, "disk");
  throw invalid("disk", "There is no disk to add", "Give one, with file or size_mib");
}

/** Checks the disks of a spec. */
export function validateDataDisks(disks: readonly wire.DataDisk[]): readonly DataDiskSpec[] {
  checkCount(disks, maxDataDisks, "disks");
  return disks.map((disk, i) => validateDataDisk(disk, `disks[${i}]`));
}
