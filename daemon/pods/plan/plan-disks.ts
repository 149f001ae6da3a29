import { join } from "node:path";
import type { PodSpec } from "../../../api/pod-spec.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import type { DiskPlan } from "../../../hypervisor/driver.ts";
import { imageInUse, type ImageUse } from "../../../hypervisor/disks/image-file.ts";
import { emptyQcow2, fullQcow2Bytes } from "../../../hypervisor/disks/qcow2-copy.ts";
import { inDev } from "../../../hypervisor/disks/disk-argv.ts";
import { notWritable } from "../../../hypervisor/disks/allowed-files.ts";
import { refuseFile } from "./plan-files.ts";
import type { DiskSnapshot, Snapshot } from "./snapshot.ts";

type DiskSpec = PodSpec["boot"]["disks"][number];
type AskedDisk = DiskSpec & { readonly field: string };
type Found = Extract<DiskSnapshot, { readonly kind: "disk" }>;

/**
 * The disks of a spec that are files of the host: those of the boot, then those that are plugged
 * in, each with the field of its path. What is plugged in is written to directly.
 */
export const disksAsked = ({ boot, disks = [] }: Pick<PodSpec, "boot" | "disks">): AskedDisk[] => [
  ...boot.disks.map((disk, i) => ({ ...disk, field: `boot.disks[${i}].path` })),
  ...disks.flatMap(({ file, readOnly }, i) =>
    file === undefined
      ? []
      : [
          {
            ...file,
            readOnly,
            ...(readOnly ? {} : { writeThrough: true as const }),
            field: `disks[${i}].file`,
          },
        ],
  ),
];

/**
 * Decides the disks: writes go into files of the pod's own, unless the spec has them go through.
 * In the order of `disksAsked`. Throws `IMAGE_MISSING`, `IMAGE_UNREADABLE`, `IMAGE_IN_USE`,
 * `PERMISSION_DENIED`, `INVALID_ARGUMENT`.
 */
export function planDisks(asked: PodSpec, snapshot: Snapshot): DiskPlan[] {
  // The machine reads its boot files, too.
  const bootFiles = Object.values(snapshot.files).flatMap((file) =>
    file.kind === "file" && file.image !== undefined ? [file.image] : [],
  );
  const uses = new Map<string, ImageUse>(bootFiles.map((image) => [image, "reads"]));
  return disksAsked(asked).map((spec, i) => {
    const { field } = spec;
    const found = snapshot.disks[i] ?? { kind: "missing" };
    if (found.kind === "outside" && spec.writeThrough === true)
      throw notWritable({ path: spec.path, field }, snapshot.writeWithin ?? []);
    if (found.kind !== "disk") throw refuseFile(found, spec.path, field, "disk", snapshot);
    const use = spec.writeThrough === true ? "writes" : "reads";
    checkUse(spec, found, use, field);
    const before = uses.get(found.image);
    if (before !== undefined && (before === "writes" || use === "writes")) throw twice(spec, field);
    uses.set(found.image, use);
    const { format, readOnly } = spec;
    const path = found.real ?? spec.path;
    const isDevice = found.image.startsWith("device ");
    return {
      path,
      format,
      readOnly,
      ...(isDevice === inDev(path) ? {} : { isDevice }),
      ...(readOnly || use === "writes"
        ? {}
        : {
            overlay: {
              ...overlayOf(found, join(snapshot.disksDir, snapshot.podId, `${i}.qcow2`)),
              ...bound(spec, found, snapshot, `boot.disks[${i}].max_mib`),
            },
          }),
    };
  });
}

const overlayOf = ({ bytes, mark }: Found, path: string): DiskPlan["overlay"] & {} => ({
  path,
  bytes,
  over: mark,
});

/**
 * How large the pod's own file may become, if that is less than a disk written to from end to end
 * takes.
 */
function bound(
  { maxMib }: DiskSpec,
  { bytes }: Found,
  { diskMaxMib = 0 }: Snapshot,
  field: string,
): { readonly maxBytes?: number } {
  const mib = maxMib ?? diskMaxMib;
  const maxBytes = mib * 2 ** 20;
  if (mib === 0 || maxBytes >= fullQcow2Bytes(bytes)) return {};
  const least = emptyQcow2(bytes).length;
  if (maxBytes > least) return { maxBytes };
  throw new PodnetError("INVALID_ARGUMENT", `A disk this large does not fit into ${mib} MiB`, {
    field,
    hint: `Give at least ${Math.floor(least / 2 ** 20) + 1} MiB, or set disk_max_mib to as much`,
  });
}

/** Refuses a writable file that another pod, the node or a program on the host uses. */
function checkUse(
  { path }: DiskSpec,
  { holders, usedBy, writable }: Found,
  use: ImageUse,
  field: string,
): void {
  const holder = holders.find((each) => each.use === "writes" || use === "writes");
  if (holder !== undefined) throw imageInUse(path, field, holder.use, holder);
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
  new PodnetError(
    "INVALID_ARGUMENT",
    `The pod uses "${printable(path)}" twice, and writes through to it`,
    {
      field,
      hint: "Name a write-through disk once, and boot from another file",
      details: { path },
    },
  );
