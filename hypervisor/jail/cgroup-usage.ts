import { readFileSync } from "node:fs";
import type { CgroupPlan } from "../driver.ts";

/**
 * The combined usage of the processes in a VM's control groups; a value that none of its groups
 * counts is absent.
 */
export interface CgroupUsage {
  readonly cpuMs?: number;
  readonly memoryBytes?: number;
  readonly memoryLimitBytes?: number;
}

const number = (text: string | undefined): number | undefined =>
  text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;

/** Processor time of a group of version 2 (`cpu.stat`), milliseconds. */
export function parseCpuStat(text: string): number | undefined {
  const microseconds = number(/^usage_usec (\d+)$/m.exec(text)?.[1]);
  return microseconds === undefined ? undefined : microseconds / 1000;
}

/**
 * Memory that a group holds, from `memory.current` or `memory.usage_in_bytes` and `memory.stat`:
 * without what of files the kernel has kept and not used since, which it gives up before anything
 * else.
 */
export function parseHeldMemory(usage: string, stat: string): number | undefined {
  const all = number(usage.trim());
  const idle = number(/^inactive_file (\d+)$/m.exec(stat)?.[1]) ?? 0;
  return all === undefined ? undefined : Math.max(0, all - idle);
}

/**
 * Looks at a VM's control groups, which are those of QEMU alone. A group that is gone says nothing.
 */
export function cgroupUsage(cgroups: readonly CgroupPlan[]): CgroupUsage {
  for (const { path, files } of cgroups) {
    const limit = files.find(
      ([name]) => name === "memory.max" || name === "memory.limit_in_bytes",
    )?.[1];
    if (limit === undefined) continue;
    const usage = read(`${path}/memory.current`) ?? read(`${path}/memory.usage_in_bytes`);
    const memoryBytes =
      usage === undefined ? undefined : parseHeldMemory(usage, read(`${path}/memory.stat`) ?? "");
    const memoryLimitBytes = number(limit);
    const cpuMs = parseCpuStat(read(`${path}/cpu.stat`) ?? "");
    return {
      ...(cpuMs === undefined ? {} : { cpuMs }),
      ...(memoryBytes === undefined ? {} : { memoryBytes }),
      ...(memoryLimitBytes === undefined ? {} : { memoryLimitBytes }),
    };
  }
  return {};
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return undefined;
  }
}
