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
 * Where an interface leads, with the decisions of its kind. Each kind of interface is one module of
 * this folder; the planner asks a place what it can do, and never which kind it is.
 */
export interface Place {
  /** Largest there. */
  readonly mtu: number;
  /** The name in messages. */
  readonly title: string;
  /** The machine has a NIC for it. */
  readonly hasNic: boolean;
  /** The tap exists already, and is foreign. */
  readonly keepsTap: boolean;
  /** The only name it can have in the guest; absent where one can be chosen. */
  readonly guestName?: IfName;
  /** A bridge with few ports left, one of which the interface takes. */
  readonly room?: { readonly bridge: IfName; readonly used: number };

  addresses(wish: Wish, choice: AddressChoice): readonly IpPrefix[];
  /** The gateways, one of each address family that the interface has an address of. */
  gateways(addresses: readonly IpPrefix[]): GatewayPlan[];
  /** The parts that are written into the plan. */
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

/** The addresses of a pod chosen so far, and the choice of more. */
export interface AddressChoice {
  /**
   * The requested addresses; else those that the interface has, or one of each of the network's
   * pools.
   */
  ofNetwork(wish: Wish, network: NetworkSnapshot): readonly IpPrefix[];
  /** Throws `ADDRESS_INVALID` for addresses of podnet's networks. */
  refusePooled(addresses: readonly IpPrefix[], field: string): void;
  /** Throws `ADDRESS_IN_USE` for addresses that pods have on a bridge. */
  refuseHeld(addresses: readonly IpPrefix[], wish: Wish, bridge: IfName): void;
}
