import { printable } from "../../core/names.ts";
import { invalid } from "../fields.ts";
import type * as wire from "../gen/podnet/v1/pod_service_pb.ts";
import type { BootSpec } from "../pod-spec.ts";
import { absolutePath, diskFormat } from "./disks.ts";

/** A disk that is to be plugged into a running pod: a file, or an empty one that podnetd makes. */
export interface AddDisk {
  /** Undefined: podnetd chooses. */
  readonly name?: string;
  readonly file?: Pick<BootSpec["disks"][number], "path" | "format">;
  /** Instead of a file. */
  readonly sizeMib?: number;
  readonly readOnly: boolean;
}

/** A serial number of virtio has 20 bytes; QEMU's ids take no other characters. */
const namePattern = /^[a-z0-9](?:[a-z0-9-]{0,18}[a-z0-9])?$/;
/** Serial numbers of the disks that a machine boots with. */
const ofBoot = /^(?:disk[0-9]+|seed)$/;
/** Of a disk: 2 PiB, as of images. */
const mostMib = 2 ** 31;

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

export function validateAddDisk(request: wire.AddDiskRequest): AddDisk {
  const { name, file, format, sizeMib, readOnly } = request;
  const named = name === "" ? {} : { name: parseDiskName(name) };
  if ((file === "") === (sizeMib === 0))
    throw invalid(
      file === "" ? "file" : "size_mib",
      file === "" ? "There is no disk to add" : "A disk is a file, or one that podnetd makes",
      "Give file or size_mib",
    );
  if (file !== "") {
    const path = absolutePath(file, "file");
    return { ...named, file: { path, format: diskFormat(format, "format") }, readOnly };
  }
  if (format !== "")
    throw invalid("format", "podnetd makes raw disks", "Leave format out, or give file");
  if (readOnly)
    throw invalid("read_only", "An empty disk cannot be read only", "Leave read_only out");
  if (sizeMib > mostMib)
    throw invalid("size_mib", `${sizeMib} MiB are too many`, `Ask for ${mostMib} at most`);
  return { ...named, sizeMib, readOnly };
}
