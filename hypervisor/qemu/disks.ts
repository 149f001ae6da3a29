import { closeSync, constants, openSync } from "node:fs";
import { cross } from "../../core/crossing.ts";
import { fileError } from "../../linux/syscall-error.ts";
import type { VmPlan } from "../driver.ts";
import { checkOpened } from "./allowed-files.ts";

/** Disks opened for a QEMU that will inherit them, in the plan's order; disposing closes ours. */
export interface OpenDisks extends Disposable {
  readonly fds: readonly number[];
}

/** Opens a machine's disks the way QEMU will ask for them. Throws `SYSCALL_FAILED`, `PERMISSION_DENIED`. */
export function openDisks({
  disks,
  imagesWithin,
}: Pick<VmPlan, "disks" | "imagesWithin">): OpenDisks {
  using opened = new DisposableStack();
  const fds = disks.map(({ path, readOnly }, i) => {
    const flags = readOnly ? constants.O_RDONLY : constants.O_RDWR;
    const fd = opened.adopt(openFile(path, flags), closeSync);
    // What was looked at before the start may have been replaced; what is open may not.
    checkOpened(fd, { path, field: `boot.disks[${i}].path` }, imagesWithin);
    return fd;
  });
  const kept = opened.move();
  return { fds, [Symbol.dispose]: () => kept.dispose() };
}

function openFile(path: string, flags: number): number {
  try {
    return cross("file", "open disk", () => openSync(path, flags));
  } catch (error) {
    throw fileError(error, `Cannot open disk "${path}"`);
  }
}
