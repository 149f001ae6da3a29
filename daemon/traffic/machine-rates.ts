import type { DiskUsage, VmRecord, VmUsage } from "../../hypervisor/driver.ts";

/** A machine's usage at a moment of the monotonic clock. */
export interface MachineSample {
  readonly atMs: number;
  readonly record: Pick<VmRecord, "pid" | "startTime">;
  readonly usage: VmUsage;
}

/** Its usage per second, between two samples. */
export interface MachineRates {
  /** 100 is one processor. */
  readonly cpuPercent: number;
  /** By the disk's place in the later sample; undefined where the earlier one does not have it. */
  readonly disks: readonly (
    | { readonly readBytes: number; readonly writeBytes: number }
    | undefined
  )[];
}

/** Below this the clocks' own steps would show, milliseconds. */
const leastMs = 1;

/** Rates between two samples; undefined when they are not of the same run of a machine. */
export function machineRates(
  before: MachineSample | undefined,
  now: MachineSample,
): MachineRates | undefined {
  if (before === undefined || before.record.pid !== now.record.pid) return undefined;
  if (before.record.startTime !== now.record.startTime) return undefined;
  const elapsedMs = now.atMs - before.atMs;
  const grown = now.usage.cpuMs - before.usage.cpuMs;
  if (elapsedMs < leastMs || grown < 0) return undefined;
  const rate = (then: number, since: number): number => ((since - then) * 1000) / elapsedMs;
  return {
    cpuPercent: (grown * 100) / elapsedMs,
    disks: (now.usage.disks ?? []).map((disk, i) => {
      const then = before.usage.disks?.[i];
      if (then?.path !== disk.path || wentBack(then, disk)) return undefined;
      return {
        readBytes: rate(then.readBytes, disk.readBytes),
        writeBytes: rate(then.writeBytes, disk.writeBytes),
      };
    }),
  };
}

const wentBack = (then: DiskUsage, now: DiskUsage): boolean =>
  now.readBytes < then.readBytes || now.writeBytes < then.writeBytes;
