import type { ContainerLimits, ContainerUsage } from "../../protocol/container-messages.ts";
import { makeDirectories, readText } from "../files.ts";
import { SysError, failedWith, sys } from "../sys.ts";

/** Where the groups of containers are: no container has it in its files. */
const top = "/run/podnet/groups";
const controllers = ["cpu", "memory", "pids"] as const;
/** nosuid, nodev, noexec. */
const bare = 14;

/** Whether the kernel counts what groups of processes use, and limits it. */
export function hasGroups(): boolean {
  counts ??= /^nodev\tcgroup2$/m.test(readText("/proc/filesystems") ?? "");
  return counts;
}
let counts: boolean | undefined;

/** As the kernel's files have it: 0 is no limit. */
const amount = (value: number): string => (value === 0 ? "max" : `${value}`);

function openGroups(): void {
  if (readText("/proc/self/mounts")?.includes(` ${top} `) === true) return;
  makeDirectories(top);
  sys.mount("podnet", top, "cgroup2", bare, "");
  for (const each of controllers) sys.writeSmall(`${top}/cgroup.subtree_control`, `+${each}`);
}

/** The control group of one container: all of its processes. */
export class ContainerGroup {
  readonly #directory: string;

  constructor(id: string) {
    this.#directory = `${top}/${id}`;
  }

  /** The file by which a process joins. */
  get door(): string {
    return `${this.#directory}/cgroup.procs`;
  }

  make(): void {
    openGroups();
    try {
      sys.mkdir(this.#directory, 0o700);
    } catch (thrown) {
      if (!failedWith(thrown, "EEXIST")) throw thrown;
    }
  }

  /** Sets what is given. */
  limit(limits: ContainerLimits): void {
    const { memoryBytes, killedAsOne, cpuQuotaUs, cpuPeriodUs = 100_000, cpuWeight, pids } = limits;
    if (memoryBytes !== undefined) this.#write("memory.max", amount(memoryBytes));
    if (killedAsOne !== undefined) this.#write("memory.oom.group", killedAsOne ? "1" : "0");
    if (cpuQuotaUs !== undefined) this.#write("cpu.max", `${amount(cpuQuotaUs)} ${cpuPeriodUs}`);
    if (cpuWeight !== undefined) this.#write("cpu.weight", `${cpuWeight}`);
    if (pids !== undefined) this.#write("pids.max", amount(pids));
  }

  get usage(): Omit<ContainerUsage, "id"> {
    const number = (file: string, key: string): number => {
      const text = readText(`${this.#directory}/${file}`) ?? "";
      return Number(new RegExp(`^${key} (\\d+)$`, "m").exec(text)?.[1] ?? 0);
    };
    const memoryBytes = Number(readText(`${this.#directory}/memory.current`) ?? 0);
    return {
      cpuUs: number("cpu.stat", "usage_usec"),
      memoryBytes,
      // What could be dropped at once does not count, as Kubernetes has it.
      workingSetBytes: Math.max(0, memoryBytes - number("memory.stat", "inactive_file")),
      oomKills: number("memory.events", "oom_kill"),
    };
  }

  /** Kills all that is in it, also what it is about to start. */
  kill(): void {
    try {
      this.#write("cgroup.kill", "1");
    } catch (thrown) {
      if (!failedWith(thrown, "ENOENT")) throw thrown;
    }
  }

  get isEmpty(): boolean {
    return !/^populated 1$/m.test(readText(`${this.#directory}/cgroup.events`) ?? "");
  }

  remove(): void {
    try {
      sys.rmdir(this.#directory);
    } catch (thrown) {
      // A process that an agent before this one started may be on its way out.
      if (!failedWith(thrown, "ENOENT", "ENOTDIR", "EBUSY")) throw thrown;
    }
  }

  #write(file: string, text: string): void {
    try {
      sys.writeSmall(`${this.#directory}/${file}`, text);
    } catch (thrown) {
      if (!(thrown instanceof SysError)) throw thrown;
      throw new SysError(`${file} "${text}"`, thrown.errno);
    }
  }
}
