import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import type { IpPrefix } from "../../../../core/address.ts";
import type { IfName } from "../../../../core/names.ts";
import type { NetworkSnapshot, Snapshot } from "../../plan/snapshot.ts";
import type { GatewayPlan, InterfacePlan } from "../../store/pod-plan.ts";

/** An interface that is asked for. */
export interface Wish {
  readonly wanted: InterfaceSpec;
  /** The request's field, for errors. */
  readonly field: string;
  /** The interface that is changed; it keeps its position, NIC and name. */
  readonly was?: InterfacePlan;
}

/**
 * Where an interface leads, found, with what its kind decides. Each kind of interface is one module
 * of this folder; the planner asks a place and never which kind it is.
 */
export interface Place {
  /** Largest there. */
  readonly mtu: number;
  /** As messages say it. */
  readonly title: string;
  /** The machine has a NIC for it. */
  readonly hasNic: boolean;
  /** Its tap is there already, and another program's. */
  readonly keepsTap: boolean;
  /** The only name it can have in the guest; absent where one can be chosen. */
  readonly guestName?: IfName;
  /** A bridge with few ports left: it takes one of them. */
  readonly room?: { readonly bridge: IfName; readonly used: number };

  addresses(wish: Wish, choice: AddressChoice): readonly IpPrefix[];
  /** The gateways that are there, one of each family that the interface has an address of. */
  gateways(addresses: readonly IpPrefix[]): GatewayPlan[];
  /** What of it is written into the plan. */
  planned(
    draft: Pick<Draft, "wanted" | "was" | "position">,
    snapshot: Pick<Snapshot, "podId" | "cni">,
  ): Pick<InterfacePlan, "network" | "bridge" | "bridgeMtu" | "port" | "tapKept" | "cni">;
}

/** A request for an interface, with what has been decided about it. */
export interface Draft extends Wish {
  readonly position: number;
  readonly place: Place;
  readonly addresses: readonly IpPrefix[];
}

/** What of a pod's addresses is chosen so far, and choosing more. */
export interface AddressChoice {
  /** The addresses asked for; else those it has, or one of each of the network's pools. */
  ofNetwork(wish: Wish, network: NetworkSnapshot): readonly IpPrefix[];
  /** Throws `ADDRESS_INVALID` for addresses of podnet's networks. */
  refusePooled(addresses: readonly IpPrefix[], field: string): void;
  /** Throws `ADDRESS_IN_USE` for addresses that pods have on a bridge. */
  refuseHeld(addresses: readonly IpPrefix[], wish: Wish, bridge: IfName): void;
}
