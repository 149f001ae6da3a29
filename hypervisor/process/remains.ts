import type { VmPlan } from "../driver.ts";
import { removeCgroups } from "../jail/cgroup.ts";
import { removeRunDir } from "./run-dir.ts";

/**
 * Removes what an ended QEMU leaves: its control groups, with whatever may run in them still, and
 * its directory.
 */
export async function removeRemains(plan: VmPlan): Promise<void> {
  await removeCgroups(plan.jail?.cgroups ?? []);
  await removeRunDir(plan);
}
