import { constants, type Stats } from "node:fs";
import { access, type FileHandle, open } from "node:fs/promises";
import { type ErrorContext, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { fileError } from "../../linux/syscall-error.ts";
import { architectureOf } from "../architecture.ts";
import type { VmPlan } from "../driver.ts";
import { checkDiskOpened, checkOpened } from "../disks/allowed-files.ts";
import { kernelFault, kernelHeadBytes } from "./kernel-file.ts";
import { kindOf } from "./machine-kinds.ts";
import { imageInUse, lookAtDisk } from "../disks/image-file.ts";

/**
 * Below this Debian's 6.1 cloud kernel panics while it unpacks its initrd: with the default image
 * of 1.7 MB, 72 MiB fail and 76 boot (measured; arm64's boots with 64); the rest is for what a pod
 * does.
 */
export const leastMemoryMib = 80;

/**
 * Checks everything a start depends on before anything is done. Throws `QEMU_MISSING`,
 * `MEMORY_TOO_SMALL`, `IMAGE_MISSING`, `IMAGE_UNREADABLE`, `PERMISSION_DENIED`.
 */
export async function preflight(
  plan: VmPlan,
  qemuPath: string | undefined,
  leastMemory: number,
): Promise<string> {
  if (qemuPath === undefined) {
    const { program, package: where } = kindOf(plan);
    throw new PodnetError("QEMU_MISSING", `The program "${program}" is not installed`, {
      hint: `Install it: apt-get install ${where}`,
    });
  }
  if (plan.memoryMib < leastMemory) {
    throw new PodnetError(
      "MEMORY_TOO_SMALL",
      `${plan.memoryMib} MiB are too few to boot, the least is ${leastMemory} MiB`,
      {
        field: "resources.memory_mib",
        hint: `Give the pod ${leastMemory} MiB or more`,
        details: { memoryMib: plan.memoryMib, leastMib: leastMemory },
      },
    );
  }
  if (plan.kernel !== undefined) await checkKernel(plan.kernel, plan);
  if (plan.initrd !== undefined) await checkInitrd(plan.initrd, plan);
  for (const [index, disk] of plan.disks.entries())
    if (disk.layer === undefined) await checkDisk(disk, `boot.disks[${index}].path`, plan);
  return qemuPath;
}

async function checkKernel(path: string, plan: VmPlan): Promise<void> {
  const { jail, imagesWithin } = plan;
  const field = "boot.kernel";
  const { head, stat } = await readHead(path, field, kernelHeadBytes, imagesWithin);
  const fault = kernelFault(head, stat.size, architectureOf(plan));
  if (fault !== undefined) throw unreadable(path, field, fault);
  checkReadable(path, field, stat, jail);
}

async function checkInitrd(path: string, { jail, imagesWithin }: VmPlan): Promise<void> {
  const field = "boot.initrd";
  const { head, stat } = await readHead(path, field, 1, imagesWithin);
  if (head.length === 0) throw unreadable(path, field, "is empty");
  checkReadable(path, field, stat, jail);
}

/**
 * A confined QEMU opens kernel and initrd with a UID that owns no files: only the permissions for
 * others count.
 */
export const readableByOthers = ({ mode }: Pick<Stats, "mode">): boolean =>
  (mode & constants.S_IROTH) !== 0;

function checkReadable(path: string, field: string, stat: Stats, jail: VmPlan["jail"]): void {
  if (jail !== undefined && !readableByOthers(stat))
    throw unreadable(path, field, "may not be read by others, and so not by a machine's own user", {
      hint: "Make it readable (chmod o+r), or copy it to a readable directory",
    });
}

async function checkDisk(
  { path, format, readOnly, overlay }: VmPlan["disks"][number],
  field: string,
  allowed: VmPlan,
): Promise<void> {
  const writes = !readOnly && overlay === undefined;
  const found = lookAtDisk(path, format, (fd) =>
    checkDiskOpened(fd, { path, field }, writes, allowed),
  );
  const what = "disk image";
  if (found.kind === "missing") throw missing(path, field, what, found.cause);
  if (found.kind === "unreadable") throw unreadable(path, field, found.why, found);
  if (found.usedBy === "writes" || (writes && found.usedBy === "reads"))
    throw imageInUse(path, field, found.usedBy);
  if (!writes) return;
  await access(path, constants.W_OK).catch((error: unknown) => {
    throw unreadable(path, field, "cannot be written", { cause: error });
  });
}

/**
 * The first bytes of a regular file or block device, as many as there are up to `length`, and the
 * file's size.
 */
async function readHead(
  path: string,
  field: string,
  length: number,
  imagesWithin: VmPlan["imagesWithin"],
): Promise<{ readonly head: Buffer; readonly stat: Stats }> {
  let file: FileHandle;
  try {
    // Without O_NONBLOCK the open of a named pipe would wait for its writer.
    file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // No fault of the file's.
    if (code === "EMFILE" || code === "ENFILE")
      throw fileError(error, `Cannot open image "${printable(path)}"`, { field });
    if (code !== "ENOENT" && code !== "ENOTDIR")
      throw unreadable(path, field, `does not open (${code})`, { cause: error });
    throw missing(path, field, "image", error);
  }
  await using _ = file;
  checkOpened(file.fd, { path, field }, imagesWithin);
  const stat = await file.stat();
  if (!stat.isFile() && !stat.isBlockDevice()) throw unreadable(path, field, "is no regular file");
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, 0);
  return { head: buffer.subarray(0, bytesRead), stat };
}

function missing(path: string, field: string, what: string, cause: unknown): PodnetError {
  return new PodnetError("IMAGE_MISSING", `There is no ${what} "${printable(path)}"`, {
    field,
    hint: "Check the path; ./scripts/build-image makes the default kernel and initrd",
    details: { path },
    cause,
  });
}

function unreadable(
  path: string,
  field: string,
  why: string,
  { hint = "Give a readable file of the right kind", cause }: ErrorContext = {},
): PodnetError {
  return new PodnetError("IMAGE_UNREADABLE", `Image "${printable(path)}" ${why}`, {
    field,
    hint,
    details: { path },
    cause,
  });
}
