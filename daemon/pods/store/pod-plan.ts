import type { PortChoices } from "../../../api/pod-spec.ts";
import type { Ip, IpPrefix } from "../../../core/address.ts";
import type { IfName, NetworkName, PodId, PodName } from "../../../core/names.ts";
import type { GuestDns, GuestRoute } from "../../../guest-init/protocol/configure.ts";
import type { NicPlan, VmPlan } from "../../../hypervisor/driver.ts";
import type { PublishedDesired } from "../../../network/model/desired.ts";
import { damaged, parseJson } from "../../store/rows.ts";
import { checkVersion } from "../../store/stored-version.ts";
import { planTrouble } from "./check-plan.ts";
import type { DataDiskPlan } from "./data-disks.ts";
import type { CniPlan } from "../interfaces/cni-plan.ts";
import type { ProcessPlan } from "../process/plan-process.ts";
import type { PublishedPlan } from "../../published/published-plan.ts";

/** Version of the stored form. podnetd refuses versions that it does not know. */
export const planVersion = 2;

/**
 * The decisions about a pod before anything happens: every name, address and route. All else is
 * derived from the plan, the spec and the current networks: `portsOf`, `guestConfigOf`,
 * `machineOf`. Plain JSON, stored with the pod; undo needs the plan alone.
 */
export interface PodPlan {
  readonly version: typeof planVersion;
  readonly podId: PodId;
  readonly name: PodName;
  /** The machine without what `machineOf` derives. */
  readonly vm: Omit<VmPlan, "seed" | "held" | "program">;
  /**
   * Who configures the guest. Absent, also in plans of earlier podnetds: the agent that answers.
   */
  readonly agent?: "hyperstart" | "none";
  readonly interfaces: readonly InterfacePlan[];
  /**
   * The requested routes, each with its interface. Default routes are made of the interfaces'
   * gateways.
   */
  readonly routes: readonly GuestRoute[];
  /**
   * The guest's name servers. Stored, as they depend on the networks' gateways and the host's
   * resolv.conf at the time of the decision.
   */
  readonly dns?: GuestDns;
  /** The published ports, in the order of the spec's. Absent when there never were any. */
  readonly published?: readonly PublishedPlan[];
  /**
   * Translations that the last change of the published ports removed: their connections are cut.
   * Absent when the host has never had rules for published ports.
   */
  readonly withdrawn?: readonly PublishedDesired[];
  /**
   * The pod has had addresses on `lo`. Host and guest may have them still, and are to have only
   * those of its interfaces.
   */
  readonly hadLoopback?: true;
  /** The main process, whose end is the pod's. */
  readonly process?: ProcessPlan;
  /** Disks that were plugged in, in addition to those that the machine boots with. */
  readonly disks?: readonly DataDiskPlan[];
}

export interface InterfacePlan {
  readonly position: number;
  /** Absent on a foreign bridge or tap, and on loopback. */
  readonly network?: NetworkName;
  /** Absent for a foreign tap, and on loopback. */
  readonly bridge?: IfName;
  /** The MTU of a foreign bridge, as it was found. */
  readonly bridgeMtu?: number;
  /** The requested settings of the bridge port; for absent ones the network's apply. */
  readonly port?: PortChoices;
  readonly addresses: readonly IpPrefix[];
  /** Nothing had its addresses before. Absent also where that is not known. */
  readonly fresh?: true;
  /** Gateways of the default routes by this interface. */
  readonly gateways: readonly GatewayPlan[];
  readonly mtu: number;
  readonly guestName: IfName;
  /** Absent on loopback: its addresses are on the guest's own `lo`. */
  readonly nic?: NicPlan;
  /** The tap is foreign: podnetd uses it where it is, and leaves it there. */
  readonly tapKept?: true;
  /**
   * The interface is redirected from a link of CNI plugins: the tap is in the link's namespace, and
   * the link decides the interface's MAC, MTU and addresses.
   */
  readonly cni?: CniPlan;
  /** The interface has been removed; the guest may not have released its NIC yet. */
  readonly leaving?: true;
}

/** A default route. */
export interface GatewayPlan {
  readonly gateway: Ip;
  /** Absent leaves it to the kernel. */
  readonly metric?: number;
}

export type NicInterface = InterfacePlan & { readonly nic: NicPlan };

/** The interfaces that have a NIC, also those that are being removed. */
export const withNic = (interfaces: readonly InterfacePlan[]): NicInterface[] =>
  interfaces.filter((each): each is NicInterface => each.nic !== undefined);

export type CniInterface = NicInterface & { readonly cni: CniPlan };

/** The interfaces that are redirected from links of CNI plugins. */
export const withCni = (interfaces: readonly InterfacePlan[]): CniInterface[] =>
  withNic(interfaces).filter((each): each is CniInterface => each.cni !== undefined);

/** The pod's interfaces without those that are being removed. */
export const staying = (interfaces: readonly InterfacePlan[]): InterfacePlan[] =>
  interfaces.filter(({ leaving }) => leaving !== true);

/** A plan that takes the place of another: it remembers that the pod has had addresses on `lo`. */
export function inPlaceOf(next: PodPlan, was: PodPlan): PodPlan {
  const has = ({ interfaces }: PodPlan): boolean => staying(interfaces).some(isLoopback);
  const had = was.hadLoopback === true || was.interfaces.some(isLoopback);
  return had && !has(next) ? { ...next, hadLoopback: true } : next;
}

const isLoopback = ({ nic }: InterfacePlan): boolean => nic === undefined;

/**
 * Reads a stored plan. Throws `STATE_NEWER` when a newer podnetd wrote it, `STATE_CORRUPT` when
 * none did.
 */
export const parseStoredPlan = (text: string): PodPlan => readStoredPlan(parseJson(text, "a plan"));

/** Reads a parsed plan, and throws as `parseStoredPlan`. A `sound` plan has been checked before. */
export function readStoredPlan(stored: unknown, sound = false): PodPlan {
  const plan = stored as PodPlan | null | undefined;
  if (plan === null || plan === undefined) throw damaged("plan has no version");
  checkVersion(plan.version, planVersion, "plan");
  const trouble = sound ? undefined : planTrouble(plan);
  if (trouble !== undefined) throw damaged(trouble);
  return plan;
}
