import { constants } from "node:fs";
import { access, type FileHandle, open } from "node:fs/promises";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { VmPlan } from "../driver.ts";
import { kernelFault, kernelHeadBytes } from "./kernel-file.ts";

/**
 * Below this Debian's 6.1 cloud kernel panics while it unpacks its initrd: with the default image of 1.7 MB,
 * 72 MiB fail and 76 boot (measured); the rest is for what a pod does.
 */
export const leastMemoryMib = 80;

/**
 * Checks everything a start depends on before anything is done.
 * Throws `QEMU_MISSING`, `MEMORY_TOO_SMALL`, `IMAGE_MISSING`, `IMAGE_UNREADABLE`.
 */
export async function preflight(
  plan: VmPlan,
  qemuPath: string | undefined,
  leastMemory: number,
): Promise<string> {
  if (qemuPath === undefined) {
    throw new PodnetError("QEMU_MISSING", 'The program "qemu-system-x86_64" is not installed', {
      hint: "Install it: apt-get install qemu-system-x86",
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
  await checkKernel(plan.kernel);
  await checkInitrd(plan.initrd);
  for (const [index, disk] of plan.disks.entries())
    await checkDisk(disk, `boot.disks[${index}].path`);
  return qemuPath;
}

async function checkKernel(path: string): Promise<void> {
  const field = "boot.kernel";
  const { head, size } = await readHead(path, field, kernelHeadBytes);
  const fault = kernelFault(head, size);
  if (fault !== undefined) throw unreadable(path, field, fault);
}

async function checkInitrd(path: string): Promise<void> {
  const field = "boot.initrd";
  if ((await readHead(path, field, 1)).head.length === 0) throw unreadable(path, field, "is empty");
}

async function checkDisk(disk: VmPlan["disks"][number], field: string): Promise<void> {
  const { head } = await readHead(disk.path, field, 4, "disk image");
  if (disk.format === "qcow2" && head.toString("latin1") !== "QFI\u00fb")
    throw unreadable(disk.path, field, "is not a qcow2 image");
  if (disk.readOnly) return;
  await access(disk.path, constants.W_OK).catch((error: unknown) => {
    throw unreadable(disk.path, field, "cannot be written", error);
  });
}

/** The first bytes of a regular file or block device, as many as there are up to `length`, and the file's size. */
async function readHead(
  path: string,
  field: string,
  length: number,
  what = "image",
): Promise<{ readonly head: Buffer; readonly size: number }> {
  let file: FileHandle;
  try {
    // Without O_NONBLOCK the open of a named pipe would wait for its writer.
    file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT" && code !== "ENOTDIR")
      throw unreadable(path, field, `does not open (${code})`, error);
    throw new PodnetError("IMAGE_MISSING", `There is no ${what} "${printable(path)}"`, {
      field,
      hint: "Check the path; ./scripts/build-image makes the default kernel and initrd",
      details: { path },
      cause: error,
    });
  }
  await using _ = file;
  const kind = await file.stat();
  if (!kind.isFile() && !kind.isBlockDevice()) throw unreadable(path, field, "is no regular file");
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, 0);
  return { head: buffer.subarray(0, bytesRead), size: kind.size };
}

function unreadable(path: string, field: string, why: string, cause?: unknown): PodnetError {
  return new PodnetError("IMAGE_UNREADABLE", `Image "${printable(path)}" ${why}`, {
    field,
    hint: "Give a readable file of the right kind",
    details: { path },
    cause,
  });
}
