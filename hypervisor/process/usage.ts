import { cpuMsOf, isSameProcess, residentKib } from "../../linux/processes/proc.ts";
import type { DiskPlan, DiskUsage, VmPlan, VmRecord, VmUsage } from "../driver.ts";
import { cgroupUsage } from "../jail/cgroup-usage.ts";
import { parseBlockStats } from "../qmp/block-stats.ts";
import type { QmpClient } from "../qmp/client.ts";
import { diskNode } from "../disks/disk-argv.ts";

/** Longest wait for QEMU's word about its disks, milliseconds. */
const answerMs = 1000;

/**
 * A QEMU's usage, from its control groups, else from /proc; undefined when it has ended. Disk
 * counters come over QMP: without an answer they are left out.
 */
export async function usageOf(
  { pid, startTime }: VmRecord,
  { disks, jail }: Pick<VmPlan, "disks" | "jail">,
  session: () => QmpClient,
): Promise<VmUsage | undefined> {
  const counted = await disksUsage(disks, session);
  if (!isSameProcess(pid, startTime)) return undefined;
  const group = cgroupUsage(jail?.cgroups ?? []);
  const cpuMs = group.cpuMs ?? cpuMsOf(pid);
  const memoryBytes = group.memoryBytes ?? (residentKib(pid) ?? 0) * 1024;
  const { memoryLimitBytes } = group;
  if (cpuMs === undefined) return undefined;
  return {
    cpuMs,
    memoryBytes,
    ...(memoryLimitBytes === undefined ? {} : { memoryLimitBytes }),
    ...(counted === undefined ? {} : { disks: counted }),
  };
}

async function disksUsage(
  disks: readonly DiskPlan[],
  session: () => QmpClient,
): Promise<readonly DiskUsage[] | undefined> {
  if (disks.length === 0) return [];
  try {
    const answer = await session().execute("query-blockstats", {}, { deadlineMs: answerMs });
    const found = parseBlockStats(answer);
    return disks.flatMap(({ path }, i) => {
      const stats = found.get(diskNode(i));
      if (stats === undefined) return [];
      return {
        path,
        readBytes: stats.rd_bytes,
        readRequests: stats.rd_operations,
        writeBytes: stats.wr_bytes,
        writeRequests: stats.wr_operations,
      };
    });
  } catch {
    // It hangs, or its session is being opened anew: the rest is known without it.
    return undefined;
  }
}
