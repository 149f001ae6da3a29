import { closeSync, openSync, readFileSync, statSync } from "node:fs";
import { PodnetError } from "../../core/errors.ts";
import { type Architecture, hostArchitecture } from "../architecture.ts";
import type { Accelerator } from "../driver.ts";

/** `auto` takes KVM when it is really there. */
export type KvmChoice = "auto" | "on" | "off";

/**
 * Whether /proc/cpuinfo lists hardware virtualisation (`vmx` of Intel, `svm` of AMD) for every
 * processor. Pure.
 */
export const hasVirtualisation = (cpuinfo: string): boolean =>
  everyProcessor(cpuinfo, ["vmx", "svm"]);

/**
 * Whether the processors' time stamp counters have one rate, also while a processor sleeps, as
 * /proc/cpuinfo says. Pure.
 */
export const hasSteadyTsc = (cpuinfo: string): boolean =>
  everyProcessor(cpuinfo, ["constant_tsc"]) && everyProcessor(cpuinfo, ["nonstop_tsc"]);

/** Of this host. */
export const hostHasSteadyTsc = (): boolean => hasSteadyTsc(readCpuinfo());

/** Whether it lists one of these flags for every processor. */
function everyProcessor(cpuinfo: string, oneOf: readonly string[]): boolean {
  const flags = cpuinfo.match(/^flags\s*:.*$/gm) ?? [];
  return (
    flags.length > 0 &&
    flags.map((line) => line.split(/\s/)).every((words) => oneOf.some((one) => words.includes(one)))
  );
}

/**
 * Chooses how guests of an architecture run: never with KVM unless it is the host's own. Throws
 * `PREFLIGHT_FAILED` when KVM is demanded and not there.
 */
export function chooseAccelerator(choice: KvmChoice, arch: Architecture): Accelerator {
  if (choice === "off") return "tcg";
  const why = kvmMissing(arch);
  if (why === undefined) return "kvm";
  if (choice === "auto") return "tcg";
  throw new PodnetError("PREFLIGHT_FAILED", `KVM is required, but ${why}`, {
    field: "kvm",
    hint: 'Set kvm to "auto" to run guests under software emulation, or use a host with KVM',
  });
}

/** The group that may open /dev/kvm: a QEMU in a jail is in it. */
export const kvmGroup = (): number => statSync("/dev/kvm").gid;

/** What is known of the host's KVM; read when it is asked for. */
export interface KvmFacts {
  /** The text of /proc/cpuinfo. */
  readonly cpuinfo: () => string;
  /** The name of the error that opening /dev/kvm gave, such as `ENOENT`. */
  readonly openError: () => string | undefined;
}

/**
 * Why there is no KVM for these guests. On x86 /dev/kvm alone proves nothing: on some hosts without
 * vmx or svm it opens, and stock kernels hang in it. On arm64 the kernel makes the device where it
 * was started in hyp mode only.
 */
export function kvmMissing(arch: Architecture, facts: KvmFacts = thisHost): string | undefined {
  if (arch !== hostArchitecture)
    return `the processor is of ${hostArchitecture}, and guests are of ${arch}`;
  if (arch === "x86_64" && !hasVirtualisation(facts.cpuinfo()))
    return "the processor offers neither vmx nor svm";
  const errno = facts.openError();
  return errno === undefined ? undefined : `/dev/kvm does not open (${errno})`;
}

const thisHost: KvmFacts = {
  cpuinfo: readCpuinfo,
  openError() {
    try {
      closeSync(openSync("/dev/kvm", "r+"));
      return undefined;
    } catch (error) {
      return (error as NodeJS.ErrnoException).code ?? "unknown";
    }
  },
};

function readCpuinfo(): string {
  return readFileSync("/proc/cpuinfo", "latin1");
}
