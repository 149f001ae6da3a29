import type { CniSpec, InterfaceSpec } from "../../../api/pod-spec.ts";
import type { IpPrefix } from "../../../core/address.ts";
import type { IfName } from "../../../core/names.ts";
import type { NetworkSnapshot } from "../plan/snapshot.ts";
import type { InterfacePlan } from "../store/pod-plan.ts";

/** An interface that is asked for. */
export interface Wish {
  readonly wanted: InterfaceSpec;
  /** The request's field, for errors. */
  readonly field: string;
  /** The interface that is changed; it keeps its position, NIC and name. */
  readonly was?: InterfacePlan;
}

/** Where an interface leads, found. */
export type Place =
  | (Linked & {
      readonly kind: "network";
      readonly bridge: IfName;
      readonly network: NetworkSnapshot;
    })
  | (Linked & { readonly kind: "bridge"; readonly bridge: IfName })
  | (Linked & { readonly kind: "tap"; readonly tap: IfName })
  | (Linked & { readonly kind: "cni"; readonly cni: CniSpec })
  | { readonly kind: "loopback" };

interface Linked {
  /** Largest there. */
  readonly mtu: number;
  /** As messages say it. */
  readonly title: string;
}

/** The same with what has been decided about it. */
export interface Draft extends Wish {
  readonly position: number;
  readonly place: Place;
  readonly addresses: readonly IpPrefix[];
}
