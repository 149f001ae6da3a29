import type { Ip, IpPrefix } from "../../../core/address.ts";
import type { IfName, NetworkName, PodId, PodName } from "../../../core/names.ts";
import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import type { NicPlan, VmPlan } from "../../../hypervisor/driver.ts";
import type { PodFragment } from "../../../network/model/desired.ts";
import { damaged, parseJson } from "../../store/rows.ts";
import { checkVersion } from "../../store/stored-version.ts";
import { planTrouble } from "./check-plan.ts";
import type { CniPlan } from "../interfaces/cni-plan.ts";
import type { PublishedPlan } from "../../published/published-plan.ts";

/** Version of the stored form. A reader refuses what it does not know. */
export const planVersion = 1;

/**
 * Everything a pod will be, decided before anything happens: every name, address and message.
 * Plain JSON, stored with the pod; undo and recovery work from it alone.
 */
export interface PodPlan {
  readonly version: typeof planVersion;
  readonly podId: PodId;
  readonly name: PodName;
  readonly vm: VmPlan;
  /** Who configures the guest; absent, as in plans of an earlier podnetd: whoever answers. */
  readonly agent?: "hyperstart" | "none";
  /** The command line the driver will run, as `Driver.describe` said when planning. */
  readonly argv: readonly string[];
  readonly interfaces: readonly InterfacePlan[];
  /** The pod's part of the host's network. */
  readonly ports: PodFragment;
  /** Its published ports, in the order of the spec's. Absent when there are none, and in plans of an earlier podnetd. */
  readonly published?: readonly PublishedPlan[];
  /** The guest's network; clock and entropy are added at the moment of sending. */
  readonly guest: GuestConfig;
}

export interface InterfacePlan {
  readonly position: number;
  /** Absent on a bridge or tap of somebody else, and on loopback. */
  readonly network?: NetworkName;
  /** Absent where the tap is another's, and on loopback. */
  readonly bridge?: IfName;
  readonly addresses: readonly IpPrefix[];
  /** Gateways of the default routes by this interface. */
  readonly gateways: readonly GatewayPlan[];
  readonly mtu: number;
  readonly guestName: IfName;
  /** Absent on loopback: its addresses are on the guest's own `lo`. */
  readonly nic?: NicPlan;
  /** Whose words answer a guest that asks for its addresses itself: the network's own addresses. Absent: podnet answers none. */
  readonly answeredBy?: readonly Ip[];
  /** The tap is somebody else's: used where it is, and left there. */
  readonly tapKept?: true;
  /** In the place of a link of CNI plugins: the tap is in that namespace, and what it takes over is not decided here. */
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

/** Whether somebody in the guest is told of its network. */
export const hasAgent = ({ agent }: Pick<PodPlan, "agent">): boolean => agent !== "none";

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

/** Reads a stored plan. Throws `STATE_NEWER` when a newer podnetd wrote it, `STATE_CORRUPT` when none did. */
export const parseStoredPlan = (text: string): PodPlan => readStoredPlan(parseJson(text, "a plan"));

/** The same of what has been parsed. What is `sound` has been looked at before. */
export function readStoredPlan(stored: unknown, sound = false): PodPlan {
  const plan = stored as PodPlan | null | undefined;
  if (plan === null || plan === undefined) throw damaged("plan has no version");
  checkVersion(plan.version, planVersion, "plan");
  const trouble = sound ? undefined : planTrouble(plan);
  if (trouble !== undefined) throw damaged(trouble);
  return { ...plan, interfaces: plan.interfaces.map(readStored) };
}

/** An interface as it was stored: an earlier podnetd's had one gateway at most. */
function readStored(
  stored: Omit<InterfacePlan, "gateways"> & {
    readonly gateways?: readonly GatewayPlan[];
    readonly gateway?: Ip;
  },
): InterfacePlan {
  const { gateway, ...plan } = stored;
  return { ...plan, gateways: plan.gateways ?? (gateway === undefined ? [] : [{ gateway }]) };
}
