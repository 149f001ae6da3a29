import type { PortChoices } from "../../../api/pod-spec.ts";
import type { Ip, IpPrefix } from "../../../core/address.ts";
import type { IfName, NetworkName, PodId, PodName } from "../../../core/names.ts";
import type { GuestDns, GuestRoute } from "../../../guest-init/protocol/configure.ts";
import type { NicPlan, VmPlan } from "../../../hypervisor/driver.ts";
import type { PublishedDesired } from "../../../network/model/desired.ts";
import { damaged, parseJson } from "../../store/rows.ts";
import { checkVersion } from "../../store/stored-version.ts";
import { planTrouble } from "./check-plan.ts";
import type { CniPlan } from "../interfaces/cni-plan.ts";
import type { PublishedPlan } from "../../published/published-plan.ts";

/** Version of the stored form. A reader refuses what it does not know. */
export const planVersion = 2;

/**
 * What is decided about a pod before anything happens: every name, address and route. All else
 * follows from it, the spec and the networks as they are: `portsOf`, `guestConfigOf`, `machineOf`.
 * Plain JSON, stored with the pod; undo works from it alone.
 */
export interface PodPlan {
  readonly version: typeof planVersion;
  readonly podId: PodId;
  readonly name: PodName;
  /** Without its seed disk: see `machineOf`. */
  readonly vm: Omit<VmPlan, "seed">;
  /** Who configures the guest; absent, as in plans of an earlier podnetd: whoever answers. */
  readonly agent?: "hyperstart" | "none";
  readonly interfaces: readonly InterfacePlan[];
  /**
   * Routes that were asked for, with the interface that each goes by. Default routes are of the
   * interfaces' gateways.
   */
  readonly routes: readonly GuestRoute[];
  /**
   * Whom the guest asks for names. A decision: it depends on who answers names when it is made, and
   * on the host's resolv.conf.
   */
  readonly dns?: GuestDns;
  /** Its published ports, in the order of the spec's. Absent when there never were any. */
  readonly published?: readonly PublishedPlan[];
  /**
   * What the host translated of them up to their last change, and does not any more: who still
   * speaks by it is cut off. Absent when the host has never had rules for published ports.
   */
  readonly withdrawn?: readonly PublishedDesired[];
  /**
   * It has had addresses on `lo`: host and guest may have them still, and are to have none but
   * those of its interfaces.
   */
  readonly hadLoopback?: true;
}

export interface InterfacePlan {
  readonly position: number;
  /** Absent on a foreign bridge or tap, and on loopback. */
  readonly network?: NetworkName;
  /** Absent where the tap is another's, and on loopback. */
  readonly bridge?: IfName;
  /** Of a foreign bridge, as it was found. */
  readonly bridgeMtu?: number;
  /** What was asked for of its bridge port; what is absent is as the network says. */
  readonly port?: PortChoices;
  readonly addresses: readonly IpPrefix[];
  /** Gateways of the default routes by this interface. */
  readonly gateways: readonly GatewayPlan[];
  readonly mtu: number;
  readonly guestName: IfName;
  /** Absent on loopback: its addresses are on the guest's own `lo`. */
  readonly nic?: NicPlan;
  /**
   * Whose words answer a guest that asks for its addresses itself: the network's own addresses.
   * Absent: podnet answers none.
   */
  readonly answeredBy?: readonly Ip[];
  /** The tap is foreign: podnetd uses it where it is, and leaves it there. */
  readonly tapKept?: true;
  /**
   * In the place of a link of CNI plugins: the tap is in that namespace, and what it takes over is
   * not decided here.
   */
  readonly cni?: CniPlan;
  /** It has been removed; the guest may not have let go of its NIC yet. */
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

/** The interfaces that are in the place of a link of CNI plugins. */
export const withCni = (interfaces: readonly InterfacePlan[]): CniInterface[] =>
  withNic(interfaces).filter((each): each is CniInterface => each.cni !== undefined);

/** The interfaces the pod is to have: those that are being removed are none of them. */
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
