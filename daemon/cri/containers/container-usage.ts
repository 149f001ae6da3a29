import { isPodnetError } from "../../../core/errors.ts";
import type { ContainerUsage } from "../../../guest-init/protocol/container-messages.ts";
import { sizeOf } from "../../../hypervisor/driver.ts";
import type { LivePod } from "../../pods/lifecycle/live-pod.ts";
import type { Pods } from "../../pods/pods.ts";
import { containersOf } from "./machine-of.ts";
import type { ContainerRow } from "./rows.ts";

/** How long a guest may take to say what its containers use, milliseconds. */
const usageMs = 3000;
/** What a machine may have used of a processor: a century, microseconds. */
const mostCpuUs = 100 * 365.25 * 86_400e6;

/**
 * What containers use, by their ids. A guest that does not say it in time, or that lies, has none:
 * kubelet then sees that the figures are missing, and not wrong ones.
 */
export async function usageOf(
  pods: Pods,
  rows: readonly ContainerRow[],
): Promise<ReadonlyMap<string, ContainerUsage>> {
  const podIds = [...new Set(rows.map(({ podId }) => podId))];
  const found = await Promise.all(podIds.map((podId) => ofPod(pods, podId)));
  return new Map(found.flat().map((usage) => [usage.id, usage]));
}

async function ofPod(pods: Pods, podId: string): Promise<readonly ContainerUsage[]> {
  try {
    const live = pods.running(podId);
    const containers = await containersOf(live);
    const said = await containers.usage(AbortSignal.timeout(usageMs));
    return said.every((each) => isPlausible(each, live)) ? said : [];
  } catch (thrown) {
    if (isPodnetError(thrown)) return [];
    throw thrown;
  }
}

/** No container uses more than its machine has. */
function isPlausible(usage: ContainerUsage, { plan: { vm } }: LivePod): boolean {
  const machineBytes = Math.max(sizeOf(vm).memoryMib, vm.memoryMib) * 2 ** 20;
  const { memoryBytes, workingSetBytes, cpuUs } = usage;
  return memoryBytes <= machineBytes && workingSetBytes <= memoryBytes && cpuUs <= mostCpuUs;
}
