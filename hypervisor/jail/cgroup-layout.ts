import { dirname, join } from "node:path";
import type { PodId } from "../../core/names.ts";
import type { CgroupPlan, JailPlan, VmSize } from "../driver.ts";

/**
 * Where the control groups of VMs are made: below `directory`, or below one directory for each
 * controller of version 1.
 */
export type CgroupLayout =
  | { readonly version: 2; readonly directory: string }
  | {
      readonly version: 1;
      readonly memory: string;
      readonly pids: string;
      /** The kernel accounts for swap as well (`memory.memsw.*`). */
      readonly swap: boolean;
    };

/**
 * Where hierarchies are mounted, in the order of /proc/self/mountinfo; the same one may be mounted
 * more than once.
 */
export interface CgroupMounts {
  readonly unified: readonly string[];
  readonly memory: readonly string[];
  readonly pids: readonly string[];
}

/** Reads /proc/self/mountinfo (proc(5)). Pure. */
export function parseCgroupMounts(mountinfo: string): CgroupMounts {
  const mounts = { unified: [] as string[], memory: [] as string[], pids: [] as string[] };
  for (const line of mountinfo.split("\n")) {
    const [before, after] = line.split(" - ", 2);
    const mountPoint = before?.split(" ")[4];
    const [type, , options = ""] = after?.split(" ") ?? [];
    if (mountPoint === undefined) continue;
    // Blanks, tabs, line feeds and backslashes are octal there.
    const path = mountPoint.replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
      String.fromCharCode(Number.parseInt(octal, 8)),
    );
    if (type === "cgroup2") mounts.unified.push(path);
    if (type !== "cgroup") continue;
    for (const controller of ["memory", "pids"] as const)
      if (options.split(",").includes(controller)) mounts[controller].push(path);
  }
  return mounts;
}

/** The contents of files below mount points, which the caller reads. */
export interface CgroupFiles {
  /**
   * Words of `cgroup.controllers` at a version 2 mount point; undefined when it cannot be read,
   * hidden by another mount.
   */
  controllers(mountPoint: string): readonly string[] | undefined;
  /** Whether a file is there. */
  has(path: string): boolean;
}

/**
 * Version 2 when it has both controllers, else version 1 when that has; else what is missing.
 * `below` is the directory made at each mount point. Pure but for `files`.
 */
export function chooseCgroups(
  mounts: CgroupMounts,
  files: CgroupFiles,
  below: string,
): CgroupLayout | { readonly missing: readonly ("memory" | "pids")[] } {
  const unified = mounts.unified.find((path) => {
    const controllers = files.controllers(path) ?? [];
    return controllers.includes("memory") && controllers.includes("pids");
  });
  if (unified !== undefined) return { version: 2, directory: `${unified}/${below}` };
  const visible = (paths: readonly string[]): string | undefined =>
    paths.find((path) => files.has(`${path}/cgroup.procs`));
  const [memory, pids] = [visible(mounts.memory), visible(mounts.pids)];
  if (memory === undefined || pids === undefined) {
    const missing = [
      ...(memory === undefined ? (["memory"] as const) : []),
      ...(pids === undefined ? (["pids"] as const) : []),
    ];
    return { missing };
  }
  return {
    version: 1,
    memory: `${memory}/${below}`,
    pids: `${pids}/${below}`,
    swap: files.has(`${memory}/memory.memsw.limit_in_bytes`),
  };
}

/** The resource limits of one VM. */
export interface VmLimits {
  readonly memoryMib: number;
  readonly pids: number;
}

/** The jail for another VM. Pure. */
export const jailOf = ({ uid, cgroups }: JailPlan, podId: PodId): JailPlan => ({
  uid,
  cgroups: cgroups.map(({ path, files }) => ({ path: join(dirname(path), podId), files })),
});

/**
 * The jail of a machine that is larger by so much, or smaller where it is negative. Pure. (Its
 * limits follow from what they are now, so that they stay what they were planned to be.)
 */
export const resizedJail = (jail: JailPlan, by: VmSize): JailPlan => ({
  ...jail,
  cgroups: jail.cgroups.map(({ path, files }) => ({
    path,
    files: files.map(([name, value]) => [name, limitBy(name, value, by)] as const),
  })),
});

function limitBy(name: string, value: string, { vcpu, memoryMib }: VmSize): string {
  if (name === "pids.max") return `${Number(value) + vcpu}`;
  if (memoryLimits.has(name)) return `${Number(value) + memoryMib * 2 ** 20}`;
  return value;
}

const memoryLimits = new Set([
  "memory.max",
  "memory.limit_in_bytes",
  "memory.memsw.limit_in_bytes",
]);

/**
 * The control groups of a VM, by its pod's id, or of a helper of podnetd's, with what is written
 * into them, in order. Pure.
 */
export function planCgroups(
  layout: CgroupLayout,
  name: PodId | `images-${string}`,
  limits: VmLimits,
): readonly CgroupPlan[] {
  const bytes = `${limits.memoryMib * 2 ** 20}`;
  const pids = ["pids.max", `${limits.pids}`] as const;
  if (layout.version === 2) {
    return [
      {
        path: `${layout.directory}/${name}`,
        // memory.oom.group: the VM or helper ends whole.
        files: [["memory.max", bytes], ["memory.swap.max", "0"], ["memory.oom.group", "1"], pids],
      },
    ];
  }
  return [
    {
      path: `${layout.memory}/${name}`,
      files: [
        ["memory.limit_in_bytes", bytes],
        // With swap; it may not be below the one without, which is why that comes first.
        ...(layout.swap ? [["memory.memsw.limit_in_bytes", bytes] as const] : []),
      ],
    },
    { path: `${layout.pids}/${name}`, files: [pids] },
  ];
}
