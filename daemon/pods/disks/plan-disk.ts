import { statfsSync } from "node:fs";
import { join } from "node:path";
import type { AddDisk } from "../../../api/validate/disk-change.ts";
import type { PodSpec } from "../../../api/pod-spec.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { firstDiskSlot } from "../../../hypervisor/driver.ts";
import { refuseOwners } from "../machine/attach.ts";
import { planDisks } from "../plan/plan-disks.ts";
import type { Snapshot } from "../plan/snapshot.ts";
import type { DataDiskPlan } from "../store/data-disks.ts";
import type { PodPlan } from "../store/pod-plan.ts";
import type { PodRow } from "../store/pod-row.ts";

/** The spec of a pod that asks for no more than the disk's file, for `gatherSnapshot`. */
export const specOfDisk = (
  { ports: _ports, ...spec }: PodSpec,
  { file, readOnly }: AddDisk,
): PodSpec => ({
  ...spec,
  interfaces: [],
  boot: {
    cmdline: "",
    disks: file === undefined ? [] : [{ ...file, readOnly, ...(readOnly ? {} : through) }],
  },
});

const through = { writeThrough: true } as const;

/**
 * Bytes that are free where podnetd makes disks; without a limit where that is not known, as making
 * the file says what is wrong then.
 */
export function freeBytesOf(directory: string): number {
  try {
    const { bavail, bsize } = statfsSync(directory);
    return bavail * bsize;
  } catch {
    return Infinity;
  }
}

/**
 * Decides a disk that is to be plugged into a pod. A pod writes to the file that is given, and to
 * no other: so it is the file's only user then. Pure. Throws `NAME_IN_USE`, `UNSUPPORTED`,
 * `INVALID_ARGUMENT`, and as `planDisks`.
 */
export function planDisk(
  row: Pick<PodRow, "name" | "plan">,
  asked: AddDisk,
  snapshot: Snapshot,
  freeBytes: number,
): DataDiskPlan {
  refuseOwners(row as PodRow, "plug disks into");
  const { disks = [] } = row.plan;
  const slot = freeSlot(row.plan, snapshot);
  const name = asked.name ?? freeName(disks);
  if (disks.some((each) => each.name === name))
    throw new PodnetError("NAME_IN_USE", `Pod "${row.name}" has a disk "${name}" already`, {
      field: "name",
      hint: "Choose another name, or leave it out",
      details: { holder: row.name },
    });
  if (asked.file === undefined) {
    const madeMib = sizeOf(asked, snapshot, freeBytes);
    const path = join(snapshot.disksDir, snapshot.podId, `data-${name}.raw`);
    return { name, path, format: "raw", readOnly: false, slot, madeMib };
  }
  const { path, format, readOnly } = fileOf(specOfDisk(noSpec, asked), snapshot);
  const within = readOnly ? snapshot.imagesWithin : snapshot.writeWithin;
  return { name, path, format, readOnly, slot, ...(within === undefined ? {} : { within }) };
}

const noSpec: PodSpec = {
  labels: {},
  resources: { vcpu: 1, memoryMib: 1 },
  boot: { cmdline: "", disks: [] },
  interfaces: [],
  routes: [],
};

/** Refusals of boot disks name an option that this request does not have. */
function fileOf(spec: PodSpec, snapshot: Snapshot): ReturnType<typeof planDisks>[number] {
  try {
    const [disk] = planDisks(spec, snapshot, () => "file");
    if (disk === undefined) throw new RangeError("One file gives one disk");
    return disk;
  } catch (thrown) {
    const readOnly = spec.boot.disks[0]?.readOnly === true;
    if (readOnly || !isPodnetError(thrown, "PERMISSION_DENIED", "IMAGE_IN_USE", "IMAGE_UNREADABLE"))
      throw thrown;
    throw thrown.with({
      hint: isPodnetError(thrown, "IMAGE_IN_USE")
        ? "A pod that writes to a file is its only user: plug it in read-only, or take a copy"
        : isPodnetError(thrown, "PERMISSION_DENIED")
          ? "Ask an administrator to add the disk, or to extend access.write_through_paths"
          : "Check the file's kind and permissions, or plug it in read-only",
    });
  }
}

/** The slots beyond those that NICs may have. */
function freeSlot({ disks = [] }: PodPlan, { driver }: Snapshot): number {
  const taken = new Set(disks.map(({ slot }) => slot));
  for (let slot = firstDiskSlot; slot <= driver.nicSlots; slot++) if (!taken.has(slot)) return slot;
  throw new PodnetError("INVALID_ARGUMENT", `The pod has ${disks.length} plugged disks`, {
    field: "id_or_name",
    hint: "It can have no more: remove one first",
  });
}

/** `data`, or with the first number that is free. */
function freeName(disks: readonly DataDiskPlan[]): string {
  const taken = new Set(disks.map(({ name }) => name));
  for (let n = 1; ; n++) {
    const name = n === 1 ? "data" : `data-${n}`;
    if (!taken.has(name)) return name;
  }
}

function sizeOf({ sizeMib = 0 }: AddDisk, { diskMaxMib = 0 }: Snapshot, free: number): number {
  if (diskMaxMib > 0 && sizeMib > diskMaxMib)
    throw new PodnetError("INVALID_ARGUMENT", `${sizeMib} MiB are more than a disk may have`, {
      field: "size_mib",
      hint: `Ask for ${diskMaxMib} MiB at most, or have disk_max_mib set to more`,
    });
  const freeMib = Math.floor(free / 2 ** 20);
  if (sizeMib > freeMib)
    throw new PodnetError("INVALID_ARGUMENT", `There are ${freeMib} MiB free for a disk`, {
      field: "size_mib",
      hint: "Ask for less, or make room in disks_dir",
      details: { wanted: sizeMib, free: freeMib },
    });
  return sizeMib;
}

/** The disk of this name that was plugged into the pod. Throws `DISK_NOT_FOUND`. */
export function findDisk({ name: pod, plan }: PodRow, name: string): DataDiskPlan {
  const { disks = [] } = plan;
  const found = disks.find((each) => each.name === name);
  if (found !== undefined) return found;
  const names = disks.map((each) => each.name).join(", ");
  throw new PodnetError("DISK_NOT_FOUND", `Pod "${pod}" has no plugged disk "${name}"`, {
    field: "name",
    hint: names === "" ? "It has none; disks it boots with stay" : `Its plugged disks are ${names}`,
  });
}
