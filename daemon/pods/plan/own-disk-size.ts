import { PodnetError } from "../../../core/errors.ts";
import type { Snapshot } from "./snapshot.ts";

/**
 * Checks the size asked for of a disk that podnetd makes. Throws `INVALID_ARGUMENT` for one beyond
 * `disk_max_mib`, or beyond what is free.
 */
export function checkOwnSize(
  sizeMib: number,
  { diskMaxMib = 0, diskFreeBytes = Infinity }: Pick<Snapshot, "diskMaxMib" | "diskFreeBytes">,
  field: string,
): void {
  if (diskMaxMib > 0 && sizeMib > diskMaxMib)
    throw new PodnetError("INVALID_ARGUMENT", `${sizeMib} MiB are more than a disk may have`, {
      field,
      hint: `Ask for ${diskMaxMib} MiB at most, or have disk_max_mib set to more`,
    });
  const freeMib = Math.floor(diskFreeBytes / 2 ** 20);
  if (sizeMib > freeMib)
    throw new PodnetError("INVALID_ARGUMENT", `There are ${freeMib} MiB free for a disk`, {
      field,
      hint: "Ask for less, or make room in disks_dir",
      details: { wanted: sizeMib, free: freeMib },
    });
}
