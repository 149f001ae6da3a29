import { setImmediate as turn } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { MachineStatsSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import type { Clock } from "../../core/clock.ts";
import type { PodId } from "../../core/names.ts";
import type { VmUsage } from "../../hypervisor/driver.ts";
import type { LivePod } from "../pods/lifecycle/live-pod.ts";
import { machineRates, type MachineSample } from "../traffic/machine-rates.ts";

/** Machines looked at in a row; looking at one reads a few files, and others want their turn. */
const atOnce = 32;

/** Current usage of machines, by pod, without those that have ended. */
export async function sampleMachines(
  pods: readonly LivePod[],
  clock: Clock,
): Promise<ReadonlyMap<PodId, MachineSample>> {
  const samples = new Map<PodId, MachineSample>();
  for (let from = 0; from < pods.length; from += atOnce) {
    if (from > 0) await turn();
    await Promise.all(
      pods.slice(from, from + atOnce).map(async ({ vm, plan: { podId } }) => {
        if (vm === undefined) return;
        // One that cannot be looked at now, for want of a descriptor say, is looked at the next
        // time.
        const usage = await vm.usage().catch(() => undefined);
        if (usage === undefined) return;
        samples.set(podId, { atMs: clock.monotonic(), record: vm.record, usage });
      }),
    );
  }
  return samples;
}

/** A machine's numbers as the API shows them, with the rates since the sample before. */
export function machineStats(
  sample: MachineSample,
  before: MachineSample | undefined,
): MessageInitShape<typeof MachineStatsSchema> {
  const { cpuMs, memoryBytes, memoryLimitBytes = 0 }: VmUsage = sample.usage;
  const rates = machineRates(before, sample);
  return {
    cpuS: cpuMs / 1000,
    memoryBytes: BigInt(memoryBytes),
    memoryLimitBytes: BigInt(memoryLimitBytes),
    disks: (sample.usage.disks ?? []).map((disk, i) => {
      const passed = rates?.disks[i];
      return {
        path: disk.path,
        readBytes: BigInt(disk.readBytes),
        readRequests: BigInt(disk.readRequests),
        writeBytes: BigInt(disk.writeBytes),
        writeRequests: BigInt(disk.writeRequests),
        ...(passed === undefined
          ? {}
          : { rates: { readBytesPerS: passed.readBytes, writeBytesPerS: passed.writeBytes } }),
      };
    }),
    ...(rates === undefined ? {} : { rates: { cpuPercent: rates.cpuPercent } }),
  };
}
