import { closeSync, openSync, readFileSync, statSync } from "node:fs";
import { PodnetError } from "../../core/errors.ts";

export type Accelerator = "kvm" | "tcg";

/** `auto` takes KVM when it is really there. */
export type KvmChoice = "auto" | "on" | "off";

/** Whether /proc/cpuinfo lists hardware virtualisation (`vmx` of Intel, `svm` of AMD) for every processor. Pure. */
export function hasVirtualisation(cpuinfo: string): boolean {
  const flags = cpuinfo.match(/^flags\s*:.*$/gm) ?? [];
  return flags.length > 0 && flags.every((line) => /\s(?:vmx|svm)(?:\s|$)/.test(line));
}

/**
 * Chooses how guests run. /dev/kvm alone proves nothing: on some hosts without vmx or svm it opens, and
 * stock kernels hang in it. Throws `PREFLIGHT_FAILED` when KVM is demanded and not there.
 */
export function chooseAccelerator(choice: KvmChoice): Accelerator {
  if (choice === "off") return "tcg";
  const why = kvmMissing();
  if (why === undefined) return "kvm";
  if (choice === "auto") return "tcg";
  throw new PodnetError("PREFLIGHT_FAILED", `KVM is demanded, but ${why}`, {
    field: "kvm",
    hint: 'Set kvm to "auto" to run guests under software emulation, or use a host with KVM',
  });
}

/** The group that may open /dev/kvm: a QEMU in a jail is in it. */
export const kvmGroup = (): number => statSync("/dev/kvm").gid;

function kvmMissing(): string | undefined {
  if (!hasVirtualisation(readFileSync("/proc/cpuinfo", "latin1")))
    return "the processor offers neither vmx nor svm";
  try {
    closeSync(openSync("/dev/kvm", "r+"));
    return undefined;
  } catch (error) {
    return `/dev/kvm does not open (${(error as NodeJS.ErrnoException).code})`;
  }
}
