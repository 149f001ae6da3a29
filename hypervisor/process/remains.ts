import { readdirSync } from "node:fs";
import { basename, dirname } from "node:path";
import type { PodId } from "../../core/names.ts";
import type { VmPlan } from "../driver.ts";
import { removeCgroups } from "../jail/cgroup.ts";
import { removeRunDir } from "./run-dir.ts";

/**
 * The pods of which a process, a directory or a control group is there: `running` has the processes
 * that there are, and each directory above the pods' own is listed once.
 */
export function withRemains(
  plans: readonly VmPlan[],
  running: ReadonlyMap<PodId, number>,
): ReadonlySet<PodId> {
  const listed = new Map<string, ReadonlySet<string> | undefined>();
  const mayExist = (path: string): boolean => {
    const directory = dirname(path);
    if (!listed.has(directory)) listed.set(directory, namesIn(directory));
    return listed.get(directory)?.has(basename(path)) ?? true;
  };
  const mayRemain = ({ podId, runDir, jail }: VmPlan): boolean =>
    running.has(podId) || [runDir, ...(jail?.cgroups ?? []).map(({ path }) => path)].some(mayExist);
  return new Set(plans.filter(mayRemain).map(({ podId }) => podId));
}

/** Undefined when the directory cannot be read. */
function namesIn(directory: string): ReadonlySet<string> | undefined {
  try {
    return new Set(readdirSync(directory));
  } catch (error) {
    const isAbsent = (error as NodeJS.ErrnoException).code === "ENOENT";
    return isAbsent ? new Set() : undefined;
  }
}

/**
 * Removes what an ended QEMU leaves: its control groups, with whatever may run in them still, and
 * its directory.
 */
export async function removeRemains(plan: VmPlan): Promise<void> {
  await removeCgroups(plan.jail?.cgroups ?? []);
  await removeRunDir(plan);
}
