import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import type { ContainerLimits } from "../../../guest-init/protocol/container-messages.ts";
import type { LinuxContainerResources } from "../gen/cri_pb.ts";

/** Shares of processors, as Kubernetes counts them, and weights, as the kernel does. */
const shares = { least: 2, most: 262_144 } as const;
const mostWeight = 10_000;
/** What the kernel takes as a period, and the least time in one, microseconds. */
const period = { usual: 100_000, least: 1000, most: 1_000_000 } as const;

/**
 * The limits of a container that are given: 0 is none, and less lifts one that there is. Throws
 * `INVALID_ARGUMENT`, and `UNSUPPORTED` for what a machine cannot limit. Pure.
 */
export function limitsOf(
  resources: LinuxContainerResources | undefined,
  field = "config.linux.resources",
): ContainerLimits {
  if (resources === undefined) return {};
  const { memoryLimitInBytes, cpuShares } = resources;
  refuseOfHost(resources, field);
  return {
    ...(memoryLimitInBytes === 0n ? {} : { memoryBytes: amountOf(memoryLimitInBytes) }),
    ...timeOf(resources, field),
    ...(cpuShares > 0n ? { cpuWeight: weightOf(Number(cpuShares)) } : {}),
    ...unifiedOf(resources.unified, `${field}.unified`),
  };
}

/** More than a number can be means no limit, as less than 0 does. */
const amountOf = (value: bigint): number =>
  value < 0n || value > BigInt(Number.MAX_SAFE_INTEGER) ? 0 : Number(value);

function timeOf({ cpuQuota, cpuPeriod }: LinuxContainerResources, field: string): ContainerLimits {
  if (cpuQuota === 0n) return {};
  const cpuPeriodUs = cpuPeriod === 0n ? period.usual : Number(cpuPeriod);
  if (cpuPeriodUs < period.least || cpuPeriodUs > period.most)
    throw new PodnetError("INVALID_ARGUMENT", `${cpuPeriodUs} is no period of processors`, {
      field: `${field}.cpu_period`,
      hint: `Use ${period.least} to ${period.most} microseconds`,
    });
  const cpuQuotaUs = amountOf(cpuQuota);
  if (cpuQuota > 0n && cpuQuotaUs < period.least)
    throw new PodnetError("INVALID_ARGUMENT", `${cpuQuotaUs} microseconds are too short`, {
      field: `${field}.cpu_quota`,
      hint: `Use at least ${period.least}, or less than 0 for no limit`,
    });
  return { cpuQuotaUs, cpuPeriodUs };
}

function weightOf(asked: number): number {
  const { least, most } = shares;
  const part = (Math.min(Math.max(asked, least), most) - least) / (most - least);
  return 1 + Math.round(part * (mostWeight - 1));
}

/** Files of a control group, of which two can be had. kubelet sends `memory.oom.group` itself. */
function unifiedOf(files: Readonly<Record<string, string>>, field: string): ContainerLimits {
  const limits = Object.entries(files).map(([name, text]): ContainerLimits => {
    if (name === "memory.oom.group" && (text === "0" || text === "1"))
      return { killedAsOne: text === "1" };
    if (name === "pids.max" && text === "max") return { pids: 0 };
    if (name === "pids.max" && /^[1-9]\d{0,9}$/.test(text)) return { pids: Number(text) };
    throw new PodnetError(
      "UNSUPPORTED",
      `podnet cannot set "${printable(name)}" of a container to "${printable(text)}"`,
      { field, hint: "Only memory.oom.group and pids.max can be set" },
    );
  });
  return limits.reduce((all, each) => ({ ...all, ...each }), {});
}

/** Processors, memory nodes and huge pages are the host's: a machine has its own. */
function refuseOfHost(
  { cpusetCpus, cpusetMems, hugepageLimits }: LinuxContainerResources,
  field: string,
): void {
  for (const [name, text] of [
    ["cpuset_cpus", cpusetCpus],
    ["cpuset_mems", cpusetMems],
  ] as const)
    if (text !== "")
      throw new PodnetError(
        "UNSUPPORTED",
        `podnet cannot tie a container to "${printable(text)}" of the host`,
        { field: `${field}.${name}`, hint: "Leave kubelet's cpuManagerPolicy at none" },
      );
  // kubelet sends every size that its host has, with 0.
  const huge = hugepageLimits.find(({ limit }) => limit > 0n);
  if (huge !== undefined)
    throw new PodnetError(
      "UNSUPPORTED",
      `podnet cannot give a container huge pages of ${printable(huge.pageSize)}`,
      { field: `${field}.hugepage_limits`, hint: "Leave hugepages out of the pod's resources" },
    );
}
