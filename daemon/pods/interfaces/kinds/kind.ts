import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import type { Snapshot } from "../../plan/snapshot.ts";
import type { InterfacePlan } from "../../store/pod-plan.ts";

/** The circumstances in which one requested interface is planned. */
export interface Planning {
  readonly position: number;
  /** The request's field, for errors. */
  readonly field: string;
  /** The interface that is changed: it keeps its position, NIC and name. */
  readonly was?: InterfacePlan;
  /** The pod's other interfaces: existing ones, and those planned so far. */
  readonly others: readonly InterfacePlan[];
  /** All interfaces that are requested together: each value belongs to the one that names it. */
  readonly requests: readonly InterfaceSpec[];
  readonly snapshot: Snapshot;
}

/**
 * What the kind of an interface decides about it. Each kind is one module of this folder; the
 * planner reads the kind's decisions, and never asks which kind it is.
 */
export interface InterfaceKind {
  /** Where the interface leads, as messages name it. */
  readonly title: string;
  /** The largest MTU there. */
  readonly mtu: number;
  /** The machine has a NIC for it. */
  readonly hasNic: boolean;
  /** The NIC's tap exists already, and is foreign. */
  readonly foreignTap?: true;
  /** The only name it can have in the guest; absent where one can be chosen. */
  readonly guestName?: InterfacePlan["guestName"];
  /** The kind's part of the plan. */
  readonly part: Pick<
    InterfacePlan,
    "network" | "bridge" | "bridgeMtu" | "port" | "tapKept" | "cni" | "addresses" | "fresh"
  >;
}
