import { accessSync, constants, statfsSync } from "node:fs";
import type { PodSpec } from "../../../api/pod-spec.ts";
import { isAllowed } from "../../../hypervisor/disks/allowed-files.ts";
import { lookAtDisk } from "../../../hypervisor/disks/image-file.ts";
import { realPath } from "./gather-files.ts";
import { imageAt, type ImageHolders } from "./image-holders.ts";
import { disksAsked } from "./plan-disks.ts";
import type { DiskSnapshot } from "./snapshot.ts";

/**
 * Looks at the disks that a spec names. podnetd opens them and passes them to QEMU, so it does not
 * matter which other users may read them.
 */
export function diskSnapshots(
  spec: PodSpec,
  holders: () => ImageHolders,
  imagesWithin: readonly string[] | undefined,
  writeWithin: readonly string[] | undefined,
): DiskSnapshot[] {
  return disksAsked(spec).map(({ path, format, writeThrough }) => {
    const within = writeThrough === true ? writeWithin : imagesWithin;
    const real = within === undefined ? path : realPath(path);
    // The answer does not reveal whether a file exists that the caller may not name.
    if (within !== undefined && !isAllowed(real, within)) return { kind: "outside" };
    const found = lookAtDisk(real, format);
    if (found.kind === "missing") return { kind: "missing" };
    if (found.kind === "unreadable") return { kind: "unreadable", why: `it ${found.why}` };
    const image = imageAt(real) ?? real;
    return {
      ...found,
      image,
      ...(within === undefined ? {} : { real }),
      writable: isWritable(real),
      holders: holders().get(image) ?? [],
    };
  });
}

/**
 * Bytes that are free where podnetd makes disks; undefined where that is not known: making one says
 * then what is wrong.
 */
export function freeBytesOf(directory: string): number | undefined {
  try {
    const { bavail, bsize } = statfsSync(directory);
    return bavail * bsize;
  } catch {
    return undefined;
  }
}

function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}
