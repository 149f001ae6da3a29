import { closeSync, constants, fstatSync } from "node:fs";
import { perform } from "../../core/effect.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { fileError } from "../../linux/syscall-error.ts";
import type { DiskPlan, HotDiskPlan, OverlayPlan, VmPlan } from "../driver.ts";
import {
  checkDiskOpened,
  checkOpened,
  type NamedFile,
  notAllowed,
  notWritable,
} from "./allowed-files.ts";
import { imageMark, openFault } from "./image-file.ts";
import { noDisk, openChecked } from "./open-checked.ts";
import { openSeed } from "./seed.ts";

/**
 * Disks opened for a QEMU that will inherit them, in the order of `diskFiles`; disposing closes
 * ours.
 */
export interface OpenDisks extends Disposable {
  readonly fds: readonly number[];
}

/**
 * Opens a machine's disks the way QEMU will ask for them. Throws `SYSCALL_FAILED`,
 * `PERMISSION_DENIED`; `IMAGE_MISSING` for a pod's own file that is gone, `IMAGE_UNREADABLE` for an
 * image that is not the one it was begun over.
 */
export function openDisks(
  plan: Pick<VmPlan, "disks" | "seed" | "imagesWithin" | "writeWithin">,
): OpenDisks {
  const { disks, seed } = plan;
  using opened = new DisposableStack();
  const fds = disks.flatMap(({ path, format, readOnly, overlay, layer }, i) => {
    const field = `boot.disks[${i}].path`;
    if (layer !== undefined) return [opened.adopt(openOwn({ path, field }), closeSync)];
    const unchanged = readOnly || overlay !== undefined;
    // The file that was checked before the start may have been replaced; an open one cannot be.
    const fd = opened.adopt(
      openFile({ path, field }, unchanged ? constants.O_RDONLY : constants.O_RDWR, (named) =>
        checkDiskOpened(named, { path, field }, !unchanged, plan),
      ),
      closeSync,
    );
    if (overlay === undefined) {
      checkFormat(fd, { path, field }, format);
      return [fd];
    }
    checkUnchanged(fd, path, overlay, field);
    return [fd, opened.adopt(openOwn({ path: overlay.path, field }), closeSync)];
  });
  if (seed !== undefined) fds.push(opened.use(openSeed(seed)).fd);
  const kept = opened.move();
  return { fds, [Symbol.dispose]: () => kept.dispose() };
}

/**
 * Opens a disk that is to be plugged. Throws `SYSCALL_FAILED`, `PERMISSION_DENIED`,
 * `IMAGE_UNREADABLE`, and `IMAGE_MISSING` for a file that is gone.
 */
export function openHotDisk({ path, format, readOnly, within, name }: HotDiskPlan): Disposable & {
  readonly fd: number;
} {
  using opened = new DisposableStack();
  const flags = readOnly ? constants.O_RDONLY : constants.O_RDWR;
  const missing = {
    what: `disk "${name}"`,
    hint: "Put the file back, or remove the disk: podnet disk remove",
  };
  const file = { path, field: `disks[${name}].file` };
  const check = (named: number): void =>
    checkOpened(named, file, within, readOnly ? notAllowed : notWritable);
  const fd = opened.adopt(
    orMissing(path, missing, () => openFile(file, flags, check)),
    closeSync,
  );
  checkFormat(fd, file, format);
  const kept = opened.move();
  return { fd, [Symbol.dispose]: () => kept.dispose() };
}

/** Of a pod that has run before what it wrote is not made anew. */
function openOwn(file: NamedFile): number {
  const missing = {
    what: "the pod's disk",
    hint: "Put the file back; or delete the pod and create it again",
  };
  const flags = constants.O_RDWR | constants.O_NOFOLLOW;
  return orMissing(file.path, missing, () => openFile(file, flags));
}

function orMissing(
  path: string,
  { what, hint }: { readonly what: string; readonly hint: string },
  open: () => number,
): number {
  try {
    return open();
  } catch (cause) {
    if (!isPodnetError(cause, "SYSCALL_FAILED") || cause.details["errno"] !== "ENOENT") throw cause;
    throw new PodnetError("IMAGE_MISSING", `The data of ${what} is gone: "${printable(path)}"`, {
      hint,
      details: { path },
      cause,
    });
  }
}

function openFile(file: NamedFile, flags: number, check?: (named: number) => void): number {
  const { path } = file;
  let fd: number | undefined;
  try {
    fd = perform("file", "open disk", () => openChecked(path, flags, check));
  } catch (error) {
    throw fileError(error, `Cannot open disk "${path}"`);
  }
  if (fd === undefined) throw unusable(file, noDisk);
  return fd;
}

/** The file that was inspected may have been replaced. */
function checkFormat(fd: number, file: NamedFile, format: DiskPlan["format"]): void {
  const why = openFault(fd, format);
  if (why !== undefined) throw unusable(file, why);
}

const unusable = ({ path, field }: NamedFile, why: string): PodnetError =>
  new PodnetError("IMAGE_UNREADABLE", `The disk "${printable(path)}" cannot be used: it ${why}`, {
    field,
    hint: "Put the former file back, or remove the disk",
    details: { path },
  });

function checkUnchanged(fd: number, path: string, { over }: OverlayPlan, field: string): void {
  if (imageMark(fstatSync(fd, { bigint: true })) === over) return;
  throw new PodnetError(
    "IMAGE_UNREADABLE",
    `Image "${printable(path)}" has been changed since the pod began to write over it`,
    {
      field,
      hint: "Put the former file back, with its time; or delete the pod and create it again",
      details: { path },
    },
  );
}
