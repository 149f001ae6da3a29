import { statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import type { DiskPlan, VmPlan } from "../../../hypervisor/driver.ts";

/**
 * QEMU joins adjacent writes, and allocates for all of them or none: a write of this size found no
 * room.
 */
const largestWrite = 2 * 2 ** 20;

/** The properties of a file that a machine writes to. */
export interface WrittenFile {
  readonly maxBytes: number | undefined;
  readonly allocatedBytes: number;
  /** Bytes that are free where it lies. */
  readonly freeBytes: number;
}

interface DisksOfPod {
  readonly vm: Pick<VmPlan, "disks">;
  readonly disks?: readonly (DiskPlan & { readonly name: string })[];
}

/**
 * Why QEMU has stopped a machine at an error of a disk (`io-error`), for people: which disk has no
 * room, and where. Looks at the host's files.
 */
export function diskTrouble({ vm, disks: plugged = [] }: DisksOfPod): string {
  const booted = vm.disks.map((disk, i) => ({ ...disk, name: `${i}` }));
  for (const { name, ...disk } of [...booted, ...plugged]) {
    const path = disk.overlay?.path ?? disk.path;
    const why = disk.readOnly ? undefined : fullness(look(path, disk), dirname(path));
    if (why !== undefined) return `disk ${name} is full: ${why}`;
  }
  return "a disk failed (io-error)";
}

/** Pure. Undefined where there is room. */
export function fullness(file: WrittenFile | undefined, directory: string): string | undefined {
  if (file === undefined) return undefined;
  const { maxBytes, allocatedBytes, freeBytes } = file;
  if (freeBytes < largestWrite) return `make room in ${directory} and resume the pod`;
  if (maxBytes === undefined || allocatedBytes + largestWrite < maxBytes) return undefined;
  return `its pod has written the ${maxBytes / 2 ** 20} MiB that it may`;
}

function look(path: string, { overlay }: DiskPlan): WrittenFile | undefined {
  try {
    const { blocks } = statSync(path);
    const { bavail, bsize } = statfsSync(path);
    return {
      maxBytes: overlay?.maxBytes,
      allocatedBytes: blocks * 512,
      freeBytes: bavail * bsize,
    };
  } catch {
    // A device, or gone: QEMU has it open.
    return undefined;
  }
}
