import { closeSync, constants, openSync } from "node:fs";
import { cross } from "../../core/crossing.ts";
import { fileError } from "../../linux/syscall-error.ts";
import type { DiskPlan } from "../driver.ts";

/** Disks opened for a QEMU that will inherit them, in the plan's order; disposing closes ours. */
export interface OpenDisks extends Disposable {
  readonly fds: readonly number[];
}

/** Opens disks the way QEMU will ask for them. Throws `SYSCALL_FAILED`. */
export function openDisks(disks: readonly DiskPlan[]): OpenDisks {
  using opened = new DisposableStack();
  const fds = disks.map(({ path, readOnly }) => {
    const flags = readOnly ? constants.O_RDONLY : constants.O_RDWR;
    try {
      return opened.adopt(
        cross("file", "open disk", () => openSync(path, flags)),
        closeSync,
      );
    } catch (error) {
      throw fileError(error, `Cannot open disk "${path}"`);
    }
  });
  const kept = opened.move();
  return { fds, [Symbol.dispose]: () => kept.dispose() };
}
