import path from "node:path";
import { PodnetError } from "../../core/errors.ts";
import type { RunningVm } from "../../hypervisor/driver.ts";
import { run } from "../../linux/command.ts";
import type { NetworkFragment } from "../../network/desired.ts";
import type { PodPlan } from "../pod/pod-plan.ts";
import { type Check, comparePod } from "./compare.ts";
import { type ExpectedInterface, expectedInterfaces } from "./expectation.ts";
import {
  type HostTestimony,
  parseHostTestimony,
  parseVmTestimony,
  type VmTestimony,
} from "./testimony.ts";

export interface Verification {
  readonly podId: string;
  readonly checks: Check[];
  readonly ok: boolean;
}

/** What `verifyPod` needs of a running pod. */
export interface Verifiable {
  readonly plan: PodPlan;
  readonly vm: Pick<RunningVm, "socketPath"> | undefined;
}

const witnessTimeoutMs = 10_000;

/**
 * Compares a running pod's record with what two programs that share no code with podnet find on the host and in the
 * VM. `networks` adds the bridges' own addresses to the comparison. Throws `COMMAND_FAILED` or `DEADLINE_EXCEEDED` when
 * a witness cannot speak, `WRONG_STATE` when the pod has no VM.
 */
export async function verifyPod(
  pod: Verifiable,
  signal: AbortSignal,
  networks: readonly NetworkFragment[] = [],
): Promise<Verification> {
  const { podId, name } = pod.plan;
  if (pod.vm === undefined) {
    throw new PodnetError("WRONG_STATE", `Pod "${name}" has no running machine`, {
      hint: `Start it: podnet start ${name}`,
    });
  }
  const socket = pod.vm.socketPath("witness");
  const expected = expectedInterfaces(pod.plan, networks);
  const look = async (): Promise<Check[]> => {
    const [host, vm] = await Promise.all([
      hearHostWitness(linkNames(expected), signal),
      hearVmWitness(socket, signal),
    ]);
    return comparePod(expected, host, vm);
  };
  let checks = await look();
  // netlink 0.3.0 does not notice that a dump was interrupted by a change, so what differs is looked at once more.
  if (checks.some(({ ok }) => !ok)) checks = await look();
  return { podId, checks, ok: checks.every(({ ok }) => ok) };
}

const linkNames = (expected: readonly ExpectedInterface[]): string[] => [
  ...new Set(expected.flatMap(({ tap, bridge }) => (bridge === undefined ? [tap] : [tap, bridge]))),
];

/** Links, routes and addresses of this process's network namespace, as npm's `netlink` reads them. */
export async function hearHostWitness(
  links: readonly string[],
  signal?: AbortSignal,
): Promise<HostTestimony> {
  return parseHostTestimony(await hear("witness-host.ts", links, signal));
}

/** Status and network cards of the VM behind a monitor socket, as npm's `qemu-qmp` reads them. */
export async function hearVmWitness(socket: string, signal?: AbortSignal): Promise<VmTestimony> {
  return parseVmTestimony(await hear("witness-vm.ts", [socket], signal));
}

async function hear(
  program: string,
  args: readonly string[],
  signal: AbortSignal | undefined,
): Promise<string> {
  const file = path.join(import.meta.dirname, program);
  // The packages warn of what they use of Node's; that is no finding.
  const { stdout } = await run([process.execPath, "--no-warnings", file, ...args], {
    timeoutMs: witnessTimeoutMs,
    ...(signal === undefined ? {} : { signal }),
  });
  return stdout;
}
