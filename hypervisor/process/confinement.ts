import { createHash } from "node:crypto";
import { accessSync, constants, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { perform } from "../../core/effect.ts";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { type PodId, podIdFromBytes } from "../../core/names.ts";
import type { JailPlan } from "../driver.ts";
import { missingCapabilities } from "../jail/capabilities.ts";
import {
  type CgroupLayout,
  chooseCgroups,
  parseCgroupMounts,
  planCgroups,
  type VmLimits,
} from "../jail/cgroup-layout.ts";
import { findLauncher } from "../jail/launcher.ts";
import { tryJail } from "./trial.ts";
import { isMapped, type UidRange } from "../jail/uids.ts";

/** How the machines of this host are shut in. Plain data. */
export interface Confinement {
  readonly uids: UidRange;
  readonly cgroups: CgroupLayout;
  /** MiB QEMU may use alongside its guest's memory. */
  readonly memoryOverheadMib: number;
  /** Threads and processes it may have alongside one for each vCPU. */
  readonly pids: number;
}

export interface ConfinementOptions extends Omit<Confinement, "cgroups"> {
  /** Directory below each cgroup hierarchy, relative. */
  readonly cgroup: string;
  /**
   * The program that the trial runs. Without it there is no trial, and `tryConfinement` has to be
   * called before the first machine.
   */
  readonly qemu: string | undefined;
  /** Where a directory for the trial can be made. */
  readonly runDir: string;
}

/** The jail of one machine, and of `more` than QEMU that is in it. Pure. */
export function planJail(
  confinement: Confinement,
  machine: { readonly podId: PodId; readonly vcpu: number; readonly memoryMib: number },
  uid: number,
  more: VmLimits = { memoryMib: 0, pids: 0 },
): JailPlan {
  const { podId, vcpu, memoryMib } = machine;
  const limits = {
    memoryMib: memoryMib + confinement.memoryOverheadMib + more.memoryMib,
    pids: vcpu + confinement.pids + more.pids,
  };
  return { uid, cgroups: planCgroups(confinement.cgroups, podId, limits) };
}

/**
 * Finds out how machines can be shut in here, and tries it once with QEMU itself where one is
 * given. Nothing weaker is ever taken instead: throws `PREFLIGHT_FAILED`, saying what is missing.
 */
export async function openConfinement(options: ConfinementOptions): Promise<Confinement> {
  const { uids, memoryOverheadMib, pids } = options;
  checkLauncher();
  checkCapabilities();
  checkUids(uids);
  const cgroups = findCgroups(options.cgroup);
  prepareCgroups(cgroups);
  const confinement = { uids, cgroups, memoryOverheadMib, pids };
  if (options.qemu !== undefined)
    await tryConfinement(confinement, { qemu: options.qemu, runDir: options.runDir });
  return confinement;
}

/** Has QEMU say its version in a jail as machines get it. Throws `PREFLIGHT_FAILED`. */
export async function tryConfinement(
  confinement: Confinement,
  { qemu, runDir: parent }: { readonly qemu: string; readonly runDir: string },
): Promise<void> {
  const runDir = join(parent, "jail-trial");
  // Another podnetd's trial has other control groups; one of ours that was cut short had the same,
  // which go with them.
  const podId = podIdFromBytes(createHash("sha256").update(runDir).digest().subarray(0, 12));
  const jail = planJail(confinement, { podId, vcpu: 1, memoryMib: 128 }, confinement.uids.last);
  try {
    await tryJail({ podId, runDir, jail, qemu });
  } catch (thrown) {
    const cause = toPodnetError(thrown);
    throw refused(cause.message, cause.hint ?? withoutIt, cause);
  }
}

const withoutIt = 'See docs/how-to/confinement.md; qemu.confine = "off" does without';

const refused = (
  message: string,
  hint: string,
  cause?: unknown,
  details: Readonly<Record<string, string>> = {},
): PodnetError =>
  new PodnetError("PREFLIGHT_FAILED", `VMs cannot be confined: ${message}`, {
    field: "qemu.confine",
    hint,
    details,
    cause,
  });

function checkLauncher(): void {
  const launcher = findLauncher();
  try {
    accessSync(launcher, constants.X_OK);
  } catch (cause) {
    throw refused(`"${launcher}" cannot be run`, "Build it: ./scripts/build-jail", cause);
  }
}

function checkCapabilities(): void {
  const missing = missingCapabilities(readFileSync("/proc/self/status", "latin1"));
  if (missing.length === 0) return;
  const names = missing.join(" ");
  const hint = `Give them to podnetd (AmbientCapabilities= in the unit), or set qemu.confine = "off"`;
  throw refused(`podnetd lacks ${names}`, hint, undefined, { missing: names });
}

function checkUids(uids: UidRange): void {
  if (isMapped(uids, readFileSync("/proc/self/uid_map", "latin1"))) return;
  const range = `${uids.first} to ${uids.last}`;
  throw refused(
    `users ${range} do not exist in this user namespace`,
    "Set qemu.uids to a range that /proc/self/uid_map holds",
  );
}

function findCgroups(below: string): CgroupLayout {
  const mounts = parseCgroupMounts(readFileSync("/proc/self/mountinfo", "utf8"));
  const found = chooseCgroups(mounts, { controllers, has }, below);
  if (!("missing" in found)) return found;
  throw refused(
    `no control groups for ${found.missing.join(" and ")} are to be seen`,
    "Mount them; `ip netns exec` hides those below /sys, `nsenter --net` does not",
  );
}

function controllers(mountPoint: string): readonly string[] | undefined {
  try {
    return readFileSync(`${mountPoint}/cgroup.controllers`, "latin1").trim().split(" ");
  } catch {
    return undefined;
  }
}

function has(path: string): boolean {
  try {
    accessSync(path);
    return true;
  } catch {
    return false;
  }
}

/**
 * Makes the parent directories of machines' groups. In version 2 a parent must delegate its
 * controllers explicitly.
 */
function prepareCgroups(layout: CgroupLayout): void {
  const directories = layout.version === 2 ? [layout.directory] : [layout.memory, layout.pids];
  for (const directory of directories) {
    try {
      perform("file", "make cgroup", () => mkdirSync(directory, { recursive: true }));
      if (layout.version === 2) {
        if (!(controllers(directory) ?? []).includes("pids")) handOn(dirname(directory));
        handOn(directory);
      }
      accessSync(directory, constants.W_OK);
    } catch (cause) {
      const { code } = cause as NodeJS.ErrnoException;
      throw refused(
        `control groups cannot be made in "${directory}" (${code})`,
        `Make it as root and give it to podnetd's user: mkdir -p ${directory} && chown USER ${directory}`,
        cause,
      );
    }
  }
}

function handOn(directory: string): void {
  perform("file", "hand controllers on", () =>
    writeFileSync(`${directory}/cgroup.subtree_control`, "+memory +pids"),
  );
}
