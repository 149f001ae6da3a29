import { closeSync, constants, fstatSync, openSync } from "node:fs";
import { perform } from "../../core/effect.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { fileError } from "../../linux/syscall-error.ts";
import type { HotDiskPlan, OverlayPlan, VmPlan } from "../driver.ts";
import { checkDiskOpened, checkOpened, notAllowed, notWritable } from "./allowed-files.ts";
import { imageMark } from "./image-file.ts";
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
  const open = (path: string, flags: number): number =>
    opened.adopt(openFile(path, flags), closeSync);
  const fds = disks.flatMap(({ path, readOnly, overlay }, i) => {
    const field = `boot.disks[${i}].path`;
    const unchanged = readOnly || overlay !== undefined;
    const fd = open(path, unchanged ? constants.O_RDONLY : constants.O_RDWR);
    // The file that was checked before the start may have been replaced; an open one cannot be.
    checkDiskOpened(fd, { path, field }, !unchanged, plan);
    if (overlay === undefined) return [fd];
    checkUnchanged(fd, path, overlay, field);
    return [fd, openOverlay(overlay.path, open)];
  });
  if (seed !== undefined) fds.push(opened.use(openSeed(seed)).fd);
  const kept = opened.move();
  return { fds, [Symbol.dispose]: () => kept.dispose() };
}

/**
 * Opens a disk that is to be plugged. Throws `SYSCALL_FAILED`, `PERMISSION_DENIED`, and
 * `IMAGE_MISSING` for a file that is gone.
 */
export function openHotDisk({ path, readOnly, within, name }: HotDiskPlan): Disposable & {
  readonly fd: number;
} {
  using opened = new DisposableStack();
  const flags = readOnly ? constants.O_RDONLY : constants.O_RDWR;
  const missing = {
    what: `disk "${name}"`,
    hint: "Put the file back, or remove the disk: podnet disk remove",
  };
  const fd = opened.adopt(
    orMissing(path, missing, () => openFile(path, flags)),
    closeSync,
  );
  const file = { path, field: `disks[${name}].file` };
  checkOpened(fd, file, within, readOnly ? notAllowed : notWritable);
  const kept = opened.move();
  return { fd, [Symbol.dispose]: () => kept.dispose() };
}

/** Of a pod that has run before what it wrote is not made anew. */
function openOverlay(path: string, open: (path: string, flags: number) => number): number {
  const missing = {
    what: "the pod's disk",
    hint: "Put the file back; or delete the pod and create it again",
  };
  return orMissing(path, missing, () => open(path, constants.O_RDWR | constants.O_NOFOLLOW));
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

function openFile(path: string, flags: number): number {
  try {
    // One that became a named pipe since it was looked at would hold up podnetd.
    return perform("file", "open disk", () => openSync(path, flags | constants.O_NONBLOCK));
  } catch (error) {
    throw fileError(error, `Cannot open disk "${path}"`);
  }
}

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
