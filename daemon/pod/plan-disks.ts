import { join } from "node:path";
import type { PodSpec } from "../../api/pod-spec.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { DiskPlan } from "../../hypervisor/driver.ts";
import { imageInUse, type ImageUse } from "../../hypervisor/qemu/image-file.ts";
import { refuseFile } from "./plan-files.ts";
import type { DiskSnapshot, Snapshot } from "./snapshot.ts";

type DiskSpec = PodSpec["boot"]["disks"][number];
type Found = Extract<DiskSnapshot, { readonly kind: "disk" }>;

/**
 * Decides the disks: what is written to them goes into files of the pod's own, unless it is asked to go through.
 * Throws `IMAGE_MISSING`, `IMAGE_UNREADABLE`, `IMAGE_IN_USE`, `PERMISSION_DENIED`, `INVALID_ARGUMENT`.
 */
export function planDisks({ boot }: PodSpec, snapshot: Snapshot): DiskPlan[] {
  const uses = new Map<string, ImageUse>();
  return boot.disks.map((spec, i) => {
    const field = `boot.disks[${i}].path`;
    const found = snapshot.disks[i] ?? { kind: "missing" };
    if (found.kind !== "disk") throw refuseFile(found, spec.path, field, "disk", snapshot);
    const use = spec.writeThrough === true ? "writes" : "reads";
    checkUse(spec, found, use, field);
    const before = uses.get(found.image);
    if (before !== undefined && (before === "writes" || use === "writes")) throw twice(spec, field);
    uses.set(found.image, use);
    const { path, format, readOnly } = spec;
    return {
      path: found.real ?? path,
      format,
      readOnly,
      ...(readOnly || use === "writes"
        ? {}
        : { overlay: overlayOf(found, join(snapshot.disksDir, snapshot.podId, `${i}.qcow2`)) }),
    };
  });
}

const overlayOf = ({ bytes, mark }: Found, path: string): DiskPlan["overlay"] & {} => ({
  path,
  bytes,
  over: mark,
});

/** Nobody writes to what others count on: neither pods, running or not, nor programs that have it open. */
function checkUse(
  { path }: DiskSpec,
  { holders, usedBy, writable }: Found,
  use: ImageUse,
  field: string,
): void {
  const holder = holders.find((each) => each.use === "writes" || use === "writes");
  if (holder !== undefined) throw imageInUse(path, field, holder.use, holder.pod);
  if (usedBy === "writes" || (use === "writes" && usedBy !== undefined))
    throw imageInUse(path, field, usedBy);
  if (use === "reads" || writable) return;
  throw new PodnetError("IMAGE_UNREADABLE", `The disk "${printable(path)}" cannot be written`, {
    field,
    hint: "Leave write_through out, or let podnetd's user write to it",
    details: { path },
  });
}

const twice = ({ path }: DiskSpec, field: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", `"${printable(path)}" is there twice, and written through`, {
    field,
    hint: "A disk that is written through can be given once",
    details: { path },
  });
