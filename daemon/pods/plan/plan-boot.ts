import { join } from "node:path";
import type { PodSpec, ResourcesSpec } from "../../../api/pod-spec.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { VmPlan } from "../../../hypervisor/driver.ts";
import { planJail } from "../../../hypervisor/process/confinement.ts";
import { imageInUse } from "../../../hypervisor/disks/image-file.ts";
import { kindFor } from "../../../hypervisor/argv/machine-kinds.ts";
import { bootFiles } from "./gather-files.ts";
import { planDisks } from "./plan-disks.ts";
import { refuseFile } from "./plan-files.ts";
import { withLayer } from "./plan-layer.ts";
import { roomForShares, withShares } from "./plan-shares.ts";
import type { FileSnapshot, Snapshot } from "./snapshot.ts";

/**
 * Decides the machine. Throws `IMAGE_*`, `SHARE_UNUSABLE`, `PERMISSION_DENIED`,
 * `MEMORY_TOO_SMALL`, `POOL_EXHAUSTED`, `UNSUPPORTED`, and as `planDisks`.
 */
export function planVm(spec: PodSpec, snapshot: Snapshot): VmPlan {
  const { kernel, initrd } = bootFiles(spec.boot, snapshot.defaultImage);
  if (kernel === undefined) checkBootsDisks(snapshot);
  const kernelFile = fileOf(snapshot, kernel, "boot.kernel", "kernel");
  const initrdFile = fileOf(snapshot, initrd, "boot.initrd", "initramfs");
  const disks = planDisks(spec, snapshot).slice(0, spec.boot.disks.length);
  checkMemory(spec, snapshot);
  const layered = withLayer(spec, disks, snapshot);
  const { vcpu, memoryMib } = spec.resources;
  const { podId } = snapshot;
  return {
    podId,
    arch: snapshot.arch,
    vcpu,
    memoryMib,
    ...roomOf(spec.resources, snapshot),
    ...(kernel === undefined ? {} : { kernel: kernelFile?.real ?? kernel }),
    ...(initrd === undefined ? {} : { initrd: initrdFile?.real ?? initrd }),
    disks: layered.disks,
    ...withShares(spec, snapshot, layered.cmdline),
    ...(snapshot.imagesWithin === undefined ? {} : { imagesWithin: snapshot.imagesWithin }),
    ...(snapshot.writeWithin === undefined ? {} : { writeWithin: snapshot.writeWithin }),
    ...factoryOf(spec, snapshot),
    runDir: join(snapshot.podsDir, podId),
    ...jailOf(snapshot, { podId, vcpu, memoryMib }, roomForShares(spec)),
  };
}

/** Throws `MEMORY_TOO_SMALL` where a pod's kernel and initramfs need more than it is to have. */
export function checkMemory(
  { boot, resources: { memoryMib } }: Pick<PodSpec, "boot" | "resources">,
  { defaultImage, files }: Pick<Snapshot, "defaultImage" | "files">,
): void {
  const ownImage = boot.kernel === undefined && boot.initrd === undefined;
  const { kernel, initrd } = bootFiles(boot, defaultImage);
  const bytesOf = (path: string | undefined): number => {
    const file = path === undefined ? undefined : files[path];
    return file?.kind === "file" ? file.bytes : 0;
  };
  // A foreign image's need is not known: it must at least fit, unpacked, alongside the kernel.
  const needed = ownImage
    ? defaultImage.minMemoryMib
    : Math.ceil((bytesOf(kernel) + 2 * bytesOf(initrd)) / 2 ** 20);
  if (memoryMib >= needed) return;
  throw new PodnetError(
    "MEMORY_TOO_SMALL",
    `${memoryMib} MiB are too little for this image to boot, it needs ${needed}`,
    {
      field: "resources.memory_mib",
      hint: `Give it ${needed} MiB or more`,
      details: { wanted: memoryMib, needed },
    },
  );
}

/** How large a machine may become, if that is more than what it starts with. */
export function roomOf(
  resources: ResourcesSpec,
  { arch }: Pick<Snapshot, "arch">,
): Pick<VmPlan, "room"> {
  const { vcpu, memoryMib, maxVcpu, maxMemoryMib } = resources;
  if (maxVcpu === undefined && maxMemoryMib === undefined) return {};
  if (!kindFor(arch).grows)
    throw new PodnetError("UNSUPPORTED", `Machines of ${arch} stay as large as they start`, {
      field: maxVcpu === undefined ? "resources.max_memory_mib" : "resources.max_vcpu",
      hint: "Leave the maximum out, and give the pod what it is to have at most",
    });
  return { room: { vcpu: maxVcpu ?? vcpu, memoryMib: maxMemoryMib ?? memoryMib } };
}

function checkBootsDisks({ arch }: Snapshot): void {
  if (kindFor(arch).bootsDisks) return;
  throw new PodnetError("UNSUPPORTED", `Machines of ${arch} boot no disk by themselves`, {
    field: "boot.kernel",
    hint: "Give the disk's kernel and initramfs: podnet starts these machines without firmware",
  });
}

function jailOf(
  { jail }: Snapshot,
  machine: Pick<VmPlan, "podId" | "vcpu" | "memoryMib">,
  more: ReturnType<typeof roomForShares>,
): Pick<VmPlan, "jail"> {
  if (jail === undefined) return {};
  const { confinement, uid } = jail;
  if (uid !== undefined) return { jail: planJail(confinement, machine, uid, more) };
  const { first, last } = confinement.uids;
  throw new PodnetError("POOL_EXHAUSTED", `No user from ${first} to ${last} is free for a VM`, {
    hint: "Delete a pod, or give qemu.uids a wider range",
    details: { first, last },
  });
}

/**
 * How the machine is cloned, if it is. By default only podnet's own guest is, which is known to
 * bear it: of another guest that is unknown until its template has booted. Clones share disks that
 * none of them can write to, such as the root of a container image.
 */
function factoryOf({ boot, shares }: PodSpec, { factory }: Snapshot): Pick<VmPlan, "factory"> {
  const ownImage = boot.kernel === undefined && boot.initrd === undefined;
  const asBuilt =
    boot.disks.every(({ readOnly }) => readOnly) &&
    boot.layer === undefined &&
    // The memory of a clone is its own, and what serves shares would not see it.
    shares === undefined &&
    boot.agent === undefined &&
    boot.cloudInit === undefined;
  const unasked = ownImage && asBuilt ? factory : "cold";
  const how = boot.factory ?? unasked;
  return how === "cold" ? {} : { factory: how };
}

function fileOf(
  snapshot: Snapshot,
  path: string | undefined,
  field: string,
  what: string,
): (FileSnapshot & { readonly kind: "file" }) | undefined {
  if (path === undefined) return undefined;
  const file = snapshot.files[path] ?? { kind: "missing" };
  if (file.kind === "file" && file.writer !== undefined)
    throw imageInUse(path, field, "writes", { pod: file.writer });
  if (file.kind === "file") return file;
  throw refuseFile(file, path, field, what, snapshot);
}
