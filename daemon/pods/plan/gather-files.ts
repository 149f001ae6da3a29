import {
  accessSync,
  closeSync,
  constants,
  openSync,
  readSync,
  realpathSync,
  statSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import type { PodSpec } from "../../../api/pod-spec.ts";
import type { Architecture } from "../../../hypervisor/architecture.ts";
import { isAllowed } from "../../../hypervisor/disks/allowed-files.ts";
import { kernelFault, kernelHeadBytes } from "../../../hypervisor/argv/kernel-file.ts";
import { readableByOthers } from "../../../hypervisor/argv/preflight.ts";
import { imageAt, type ImageHolders } from "./image-holders.ts";
import type { FileSnapshot, ImageSnapshot } from "./snapshot.ts";

export interface Looking {
  /** The architecture of the machine that is to boot. */
  readonly arch: Architecture;
  /** Whether kernel and initrd are opened by a QEMU that is a user of its own. */
  readonly byOthers: boolean;
  readonly imagesWithin: readonly string[] | undefined;
  /** The users of each file. */
  readonly holders: () => ImageHolders;
}

/** Kernel and initrd of a spec, as far as it has any. */
export function fileSnapshots(
  { boot }: PodSpec,
  image: ImageSnapshot,
  looking: Looking,
): Record<string, FileSnapshot> {
  const { kernel, initrd } = bootFiles(boot, image);
  const found: Record<string, FileSnapshot> = {};
  for (const path of [kernel, initrd])
    if (path !== undefined) found[path] = lookAtFile(path, looking);
  for (const path of [boot.kernel, boot.initrd])
    if (path !== undefined && found[path]?.kind === "file")
      found[path] = { ...found[path], ...writerOf(found[path].image, looking) };
  // (A start looks into the node's own image, too.)
  if (kernel !== undefined && kernel === boot.kernel)
    found[kernel] = lookIntoKernel(found[kernel] ?? { kind: "missing" }, kernel, looking.arch);
  return found;
}

/**
 * The pod that writes to a file. (Pods cannot write to the node's own image, so it needs no look.)
 */
function writerOf(image: string | undefined, { holders }: Looking): { readonly writer?: string } {
  const users = image === undefined ? [] : (holders().get(image) ?? []);
  const writer = users.find(({ use }) => use === "writes")?.pod;
  return writer === undefined ? {} : { writer };
}

/** A kernel that a pod names, as QEMU would find it. */
function lookIntoKernel(found: FileSnapshot, path: string, arch: Architecture): FileSnapshot {
  if (found.kind !== "file") return found;
  try {
    const fd = openSync(found.real ?? path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const head = Buffer.alloc(kernelHeadBytes);
      const length = readSync(fd, head, 0, head.length, 0);
      const fault = kernelFault(head.subarray(0, length), found.bytes, arch);
      return fault === undefined ? found : { kind: "unreadable", why: `it ${fault}` };
    } finally {
      closeSync(fd);
    }
  } catch (cause) {
    return { kind: "unreadable", why: (cause as NodeJS.ErrnoException).code ?? "unknown" };
  }
}

/** The files that the host boots a machine from; empty when the machine boots from its disk. */
export function bootFiles(
  { kernel, initrd }: PodSpec["boot"],
  image: Pick<ImageSnapshot, "kernel" | "initrd">,
): { readonly kernel?: string; readonly initrd?: string } {
  if (kernel === "none") return {};
  return {
    kernel: kernel ?? image.kernel,
    ...(initrd === "none" ? {} : { initrd: initrd ?? image.initrd }),
  };
}

function lookAtFile(path: string, { byOthers, imagesWithin }: Looking): FileSnapshot {
  const real = imagesWithin === undefined ? path : realPath(path);
  // A file that may not be named is not even reported as existing or missing.
  if (imagesWithin !== undefined && !isAllowed(real, imagesWithin)) return { kind: "outside" };
  try {
    const stats = statSync(real);
    if (!stats.isFile() && !stats.isBlockDevice())
      return { kind: "unreadable", why: "it is no file" };
    accessSync(real, constants.R_OK);
    if (byOthers && !readableByOthers(stats))
      return { kind: "unreadable", why: "machines run as users of their own (chmod o+r)" };
    if (stats.isFile() && stats.size === 0) return { kind: "unreadable", why: "it is empty" };
    const image = imageAt(real);
    return {
      kind: "file",
      bytes: stats.size,
      ...(image === undefined ? {} : { image }),
      ...(imagesWithin === undefined ? {} : { real }),
    };
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    return code === "ENOENT" || code === "ENOTDIR"
      ? { kind: "missing" }
      : { kind: "unreadable", why: code ?? "unknown" };
  }
}

/** A path without symbolic links, as far as it exists. */
export function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(realPath(parent), basename(path));
  }
}
