import { closeSync, openSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { perform } from "../../../core/effect.ts";
import { fileError } from "../../../linux/syscall-error.ts";
import type { VmPlan } from "../../../hypervisor/driver.ts";

/**
 * Prefix of the names of markers, before the id of a machine that has no row yet. They lie
 * alongside the machines' directories, where no QEMU can write.
 */
export const parkedPrefix = "parked-";

const markerOf = ({ runDir, podId }: Pick<VmPlan, "runDir" | "podId">): string =>
  join(dirname(runDir), parkedPrefix + podId);

/** Says that a machine which is about to start has no row. Throws `FILE_FAILED`. */
export function mark(plan: Pick<VmPlan, "runDir" | "podId">): void {
  const path = markerOf(plan);
  try {
    perform("file", "mark parked", () => closeSync(openSync(path, "wx", 0o600)));
  } catch (thrown) {
    throw fileError(thrown, `Cannot make "${path}"`);
  }
}

/** The machine has a row now, or has ended. Absence is success. */
export function unmark(plan: Pick<VmPlan, "runDir" | "podId">): void {
  perform("file", "unmark parked", () => rmSync(markerOf(plan), { force: true }));
}
