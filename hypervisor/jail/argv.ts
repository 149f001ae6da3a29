import { machineOomScore } from "../../linux/oom-score.ts";
import type { Accelerator, VmPlan } from "../driver.ts";

/** Inputs of the launcher's arguments in addition to the plan. */
export interface JailHost {
  /** Absolute path of podnet-jail. */
  readonly launcher: string;
  /** The descriptor on which it reports; those from 3 up to it are QEMU's to inherit. */
  readonly reportFd: number;
  readonly accelerator: Accelerator;
  /** Group that may open /dev/kvm, when QEMU needs it. */
  readonly kvmGroup?: number;
}

/**
 * QEMU's own sandbox: what the jail's filter leaves, it refuses from the moment QEMU has started
 * up.
 */
export const sandboxWords = [
  "-sandbox",
  "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
] as const;

/**
 * The part before QEMU's own command line: the launcher and everything that QEMU will see. Empty
 * for a plan without jail. Pure.
 */
export function jailArgv(plan: VmPlan, host: JailHost): readonly string[] {
  const { jail } = plan;
  if (jail === undefined) return [];
  const kvm = host.accelerator === "kvm";
  return [
    host.launcher,
    ["--uid", `${jail.uid}`],
    kvm && host.kvmGroup !== undefined ? ["--group", `${host.kvmGroup}`] : [],
    ["--run", plan.runDir],
    ["--report", `${host.reportFd}`],
    ["--oom-score", `${machineOomScore}`],
    ...jail.cgroups.map(({ path }) => ["--cgroup", path]),
    [plan.kernel, plan.initrd].flatMap((path) => (path === undefined ? [] : ["--read", path])),
    kvm ? ["--device", "/dev/kvm"] : [],
    ["--"],
  ].flat();
}
