import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { perform } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { userOf } from "../../linux/processes/proc.ts";
import { fileError } from "../../linux/syscall-error.ts";
import type { CgroupPlan } from "../driver.ts";
import type { CgroupLayout } from "./cgroup-layout.ts";

/**
 * Longest wait for the last process of a group to be gone; a killed one still has its memory to
 * return.
 */
const emptyMs = 10_000;

/**
 * Makes the groups of a VM and sets their limits; one that is there already is used. Throws
 * `SYSCALL_FAILED`.
 */
export function makeCgroups(cgroups: readonly CgroupPlan[]): void {
  for (const { path, files } of cgroups) {
    try {
      perform("file", "make cgroup", () => mkdirSync(path, { recursive: true }));
      for (const [name, value] of files)
        perform("file", `set ${name}`, () => writeFileSync(`${path}/${name}`, value));
    } catch (error) {
      throw fileError(error, `Cannot set up the control group "${path}"`);
    }
  }
}

/**
 * Raises the limits of a VM's groups, which are there. Throws `SYSCALL_FAILED`. (In the other
 * order: the limit with swap may never be below the one without.)
 */
export function raiseLimits(cgroups: readonly CgroupPlan[]): void {
  for (const { path, files } of cgroups)
    try {
      for (const [name, value] of files.toReversed())
        perform("file", `raise ${name}`, () => writeFileSync(`${path}/${name}`, value));
    } catch (error) {
      throw fileError(error, `Cannot raise the limits of the control group "${path}"`);
    }
}

/**
 * Ends whatever runs in the groups of a VM and removes them. Absent means success.
 * Throws `INTERNAL` when a process does not end, `SYSCALL_FAILED`.
 */
export async function removeCgroups(cgroups: readonly CgroupPlan[]): Promise<void> {
  const end = performance.now() + emptyMs;
  for (const { path } of cgroups) {
    for (let waitMs = 1; !tryRemove(path); waitMs = Math.min(waitMs * 2, 20)) {
      const pids = membersOf(path);
      if (performance.now() > end) throw doesNotEmpty(path, pids);
      for (const pid of pids) kill(pid);
      await delay(waitMs);
    }
  }
}

/** False while the group has members. */
function tryRemove(path: string): boolean {
  try {
    perform("file", "remove cgroup", () => rmdirSync(path));
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return true;
    if (code === "EBUSY") return false;
    throw fileError(error, `Cannot remove the control group "${path}"`);
  }
}

/** Whether the kernel has killed something in a group because its memory was used up. */
export function ranOutOfMemory(cgroups: readonly CgroupPlan[]): boolean {
  // By version: memory.events is 2's, memory.oom_control 1's; both say `oom_kill N`.
  const files = cgroups.flatMap(({ path }) => [
    `${path}/memory.events`,
    `${path}/memory.oom_control`,
  ]);
  return files.some((file) => {
    try {
      return /^oom_kill [1-9]/m.test(readFileSync(file, "latin1"));
    } catch {
      return false;
    }
  });
}

/**
 * Pids of the processes in a group, except those of other pid namespaces; empty when the group does
 * not exist.
 */
export function membersOf(path: string): readonly number[] {
  try {
    const text = readFileSync(`${path}/cgroup.procs`, "latin1");
    return text.split("\n").map(Number).filter(Boolean);
  } catch {
    return [];
  }
}

/**
 * Users of machines that live though no pod of `pods` is theirs: templates, whose pod may be gone
 * already, and what a forced delete could not end. Nothing else has groups here, and no process
 * leaves the group it is in.
 */
export function usersLeft(layout: CgroupLayout, pods: ReadonlySet<string>): Set<number> {
  const directory = layout.version === 2 ? layout.directory : layout.memory;
  const left = namesIn(directory).filter((name) => !pods.has(name));
  const pids = left.flatMap((name) => membersOf(join(directory, name)));
  return new Set(pids.map(userOf).filter((uid) => uid !== undefined));
}

/** Also names files, which have no members. */
function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    // The group does not exist yet.
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw fileError(error, `Cannot read the control group "${directory}"`);
  }
}

function kill(pid: number): void {
  try {
    perform("signal", "SIGKILL", () => process.kill(pid, "SIGKILL"));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

const doesNotEmpty = (path: string, pids: readonly number[]): PodnetError =>
  new PodnetError("INTERNAL", `Processes in "${path}" do not end: ${pids.join(" ")}`, {
    hint: "Look for a hung device below them; the pod's resources stay taken until they are gone",
    details: { path },
  });
