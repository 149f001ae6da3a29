import { join } from "node:path";
import type { DataDiskSpec, PodSpec } from "../../../api/pod-spec.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { type DiskPlan, firstDiskSlot } from "../../../hypervisor/driver.ts";
import { checkOwnSize } from "../plan/own-disk-size.ts";
import { planDisks } from "../plan/plan-disks.ts";
import type { Snapshot } from "../plan/snapshot.ts";
import type { DataDiskPlan } from "../store/data-disks.ts";
import type { PodRow } from "../store/pod-row.ts";

/** The spec of a pod that asks for no more than a disk, for `gatherSnapshot`. */
export const specOfDisk = ({ ports: _ports, ...spec }: PodSpec, asked: DataDiskSpec): PodSpec => ({
  ...spec,
  interfaces: [],
  boot: { cmdline: "", disks: [] },
  disks: [asked],
});

/**
 * Decides the disks that a spec has plugged in, for a pod that has these. A pod writes to a file
 * that is given, and to no other: so it is the file's only user then. Pure. Throws `NAME_IN_USE`,
 * `INVALID_ARGUMENT`, and as `planDisks`.
 */
export function planDataDisks(
  spec: PodSpec,
  snapshot: Snapshot,
  had: readonly DataDiskPlan[] = [],
): DataDiskPlan[] {
  const asked = spec.disks ?? [];
  if (asked.length === 0) return [];
  const files = filesOf(spec, snapshot);
  const made: DataDiskPlan[] = [];
  const named = new Set([...had, ...asked].flatMap(({ name }) => name ?? []));
  for (const [i, each] of asked.entries()) {
    const field = `disks[${i}]`;
    const all = [...had, ...made];
    const slot = freeSlot(all, snapshot, field);
    const name = each.name ?? freeName(named);
    named.add(name);
    if (all.some((other) => other.name === name)) throw nameInUse(name, `${field}.name`);
    const file = each.file === undefined ? undefined : files.shift();
    made.push({ name, slot, ...(file ?? madeFile(name, each, snapshot, field)) });
  }
  return made;
}

const nameInUse = (name: string, field: string): PodnetError =>
  new PodnetError("NAME_IN_USE", `The pod has a disk "${name}" already`, {
    field,
    hint: "Choose another name, or leave it out",
  });

/** The disks of the spec that are files. */
function filesOf(
  spec: PodSpec,
  snapshot: Snapshot,
): Pick<DataDiskPlan, "path" | "format" | "readOnly" | "isDevice" | "within">[] {
  const { imagesWithin, writeWithin } = snapshot;
  return plannedFiles(spec, snapshot).map(({ overlay: _none, ...file }) => {
    const within = file.readOnly ? imagesWithin : writeWithin;
    return { ...file, ...(within === undefined ? {} : { within }) };
  });
}

/** Refusals of boot disks name an option that these disks do not have. */
function plannedFiles(spec: PodSpec, snapshot: Snapshot): readonly DiskPlan[] {
  try {
    return planDisks(spec, snapshot).slice(spec.boot.disks.length);
  } catch (thrown) {
    const codes = ["PERMISSION_DENIED", "IMAGE_IN_USE", "IMAGE_UNREADABLE"] as const;
    if (!isPodnetError(thrown, ...codes)) throw thrown;
    const [, i] = /^disks\[(\d+)\]/.exec(thrown.field ?? "") ?? [];
    if (i === undefined || spec.disks?.[Number(i)]?.readOnly !== false) throw thrown;
    throw instead(thrown, {
      hint: isPodnetError(thrown, "IMAGE_IN_USE")
        ? "A pod that writes to a file is its only user: plug it in read-only, or take a copy"
        : isPodnetError(thrown, "PERMISSION_DENIED")
          ? "Ask an administrator to add the disk, or to extend access.write_through_paths"
          : "Check the file's kind and permissions, or plug it in read-only",
    });
  }
}

/** A refusal with another field or hint. */
function instead(
  error: PodnetError,
  other: { readonly field?: string; readonly hint?: string },
): PodnetError {
  const { code, message, hint, field, details, cause } = error;
  return new PodnetError(code, message, {
    ...(hint === undefined ? {} : { hint }),
    ...(field === undefined ? {} : { field }),
    ...other,
    details,
    cause,
  });
}

/** Decides the one disk of `specOfDisk`. Fields of errors are those of AddDisk. */
export function planDisk(
  spec: PodSpec,
  snapshot: Snapshot,
  had: readonly DataDiskPlan[] = [],
): DataDiskPlan {
  try {
    const [disk] = planDataDisks(spec, snapshot, had);
    if (disk === undefined) throw new RangeError("One request gives one disk");
    return disk;
  } catch (thrown) {
    if (!isPodnetError(thrown) || thrown.field === undefined) throw thrown;
    throw instead(thrown, { field: thrown.field.replace("disks[0]", "disk") });
  }
}

/** The slots beyond those that NICs may have. */
function freeSlot(disks: readonly DataDiskPlan[], { driver }: Snapshot, field: string): number {
  const taken = new Set(disks.map(({ slot }) => slot));
  for (let slot = firstDiskSlot; slot <= driver.nicSlots; slot++) if (!taken.has(slot)) return slot;
  throw new PodnetError("INVALID_ARGUMENT", `The pod has ${disks.length} plugged disks`, {
    field,
    hint: "It can have no more: remove one first",
  });
}

/** `data`, or with the first number that is free. */
function freeName(taken: ReadonlySet<string>): string {
  for (let n = 1; ; n++) {
    const name = n === 1 ? "data" : `data-${n}`;
    if (!taken.has(name)) return name;
  }
}

function madeFile(
  name: string,
  { sizeMib = 0 }: DataDiskSpec,
  snapshot: Snapshot,
  of: string,
): Pick<DataDiskPlan, "path" | "format" | "readOnly" | "madeMib"> {
  checkOwnSize(sizeMib, snapshot, `${of}.size_mib`);
  const { disksDir, podId } = snapshot;
  const path = join(disksDir, podId, `data-${name}.raw`);
  return { path, format: "raw", readOnly: false, madeMib: sizeMib };
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
