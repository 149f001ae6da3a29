import { PodnetError } from "../../core/errors.ts";
import type { RunningVm } from "../../hypervisor/driver.ts";
import type { Guest } from "../../guest-init/channel/guest.ts";
import type { FirewallFacts } from "../../network/firewall/driver.ts";
import type { ServiceDesired } from "../../network/model/service.ts";
import type { PodPlan } from "../pods/store/pod-plan.ts";
import type { Sandboxes } from "../pods/interfaces/sandboxes.ts";
import { askPlugins } from "./ask-plugins.ts";
import type { Check } from "./check.ts";
import { machineKindOf } from "../pods/machine/machine-of.ts";
import { comparePod } from "./compare.ts";
import { compareGuard, type Filters } from "./compare-guard.ts";
import { compareServices } from "./services/compare-services.ts";
import {
  type ExpectedInterface,
  expectedInterfaces,
  type ExpectedNetworks,
} from "./expectation.ts";
import { checkGuestLinks } from "./guest-links.ts";
import { checkLoopback } from "./guest-loopback.ts";
import { runSource } from "./run-source.ts";
import { hearGuard, hearServices } from "./query-guard-source.ts";
import { queryHostSource } from "./query-host-source.ts";
import { checkPlace } from "./check-place.ts";
import { hearPorts } from "./query-port-sources.ts";
import { parseVmReport, type VmReport } from "./source-reports.ts";

export interface Verification {
  readonly podId: string;
  readonly checks: Check[];
  readonly ok: boolean;
}

/** The properties of a running pod that `verifyPod` needs. */
export interface Verifiable {
  readonly plan: PodPlan;
  readonly vm: Pick<RunningVm, "socketPath"> | undefined;
  readonly guest?: Guest | undefined;
}

/** Facts about the host, in addition to the pod. */
export interface Surroundings {
  /** Adds the bridges' own addresses to the comparison. */
  readonly networks: ExpectedNetworks;
  /** The firewall backend; queried where the pod has published ports. */
  readonly firewall: () => Promise<FirewallFacts>;
  /** Absent where the guard is not in force. */
  readonly filters?: Filters;
  /** The services of the pod's networks, as the host is to have them; none unless given. */
  readonly services?: readonly ServiceDesired[];
  /** Asks plugins that have set up the pod's network. */
  readonly sandboxes: Pick<Sandboxes, "check">;
}

/**
 * Compares a running pod's record with what programs that share no code with podnet find on the
 * host, in the VM and in the guest. Throws `COMMAND_FAILED` or `DEADLINE_EXCEEDED` when a source
 * cannot speak, `WRONG_STATE` when the pod has no VM.
 */
export async function verifyPod(
  pod: Verifiable,
  signal: AbortSignal,
  { networks, firewall, filters, services = [], sandboxes }: Surroundings,
): Promise<Verification> {
  const { podId, name, published = [] } = pod.plan;
  if (pod.vm === undefined) {
    throw new PodnetError("WRONG_STATE", `Pod "${name}" has no running machine`, {
      hint: `Start it: podnet start ${name}`,
    });
  }
  const socket = machineKindOf(pod.plan.vm).verifySocket(pod.vm);
  const expected = expectedInterfaces(pod.plan, networks);
  const portsAsPrinted = async (): Promise<Check[]> =>
    hearPorts(pod.plan, await firewall(), signal);
  const look = async (): Promise<Check[]> => {
    const [host, vm, guard, served, ports, ...inside] = await Promise.all([
      queryHostSource(linkNames(expected), signal),
      socket === undefined ? undefined : queryVmSource(socket, signal),
      filters === undefined ? undefined : hearGuard(signal),
      services.length === 0 ? undefined : hearServices(signal),
      published.length === 0 ? [] : portsAsPrinted(),
      checkLoopback(pod.plan, pod.guest, signal),
      checkGuestLinks(pod.plan, pod.guest, signal),
      ...expected.map((each) => checkPlace(each, signal)),
    ]);
    const filtered =
      guard === undefined || filters === undefined ? [] : compareGuard(filters, guard);
    const led = served === undefined ? [] : compareServices(services, served);
    return [...comparePod(expected, host, vm), ...filtered, ...led, ...ports, ...inside.flat()];
  };
  const lookAgain = async (): Promise<Check[]> => {
    const checks = await look();
    // netlink 0.3.0 does not notice that a dump was interrupted by a change, so what differs is
    // looked at once more.
    return checks.some(({ ok }) => !ok) ? await look() : checks;
  };
  const [seen, said] = await Promise.all([lookAgain(), askPlugins(pod, sandboxes, signal)]);
  const checks = [...seen, ...said];
  return { podId, checks, ok: checks.every(({ ok }) => ok) };
}

const linkNames = (expected: readonly ExpectedInterface[]): string[] => [
  ...new Set(expected.flatMap(({ tap, bridge, ifb }) => [tap, ...[bridge, ifb].filter(isThere)])),
];

const isThere = <T>(value: T | undefined): value is T => value !== undefined;

/** Status and network cards of the VM behind a monitor socket, as npm's `qemu-qmp` reads them. */
export async function queryVmSource(socket: string, signal?: AbortSignal): Promise<VmReport> {
  return parseVmReport(await runSource("vm-source.ts", [socket], signal));
}
