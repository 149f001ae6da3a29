import type { CniPlan, TakenPlan } from "../cni-plan.ts";
import type { InterfacePlan, NicInterface } from "../../store/pod-plan.ts";

/**
 * What the kind of a planned interface says about it. Code outside of this folder asks this, and
 * not which parts the plan has.
 */
export interface PlannedKind {
  /** Where the interface leads, for people. */
  whither(each: InterfacePlan): string;
  /** The host's end of its NIC, for people. */
  tap(each: NicInterface): string;
  /** The tap is foreign: podnetd opens it where it is, and leaves it there. */
  readonly foreignTap?: true;
  /** The link, in a namespace of its own, whose place the NIC takes. */
  readonly replaced?: Pick<CniPlan, "netns" | "link">;
  /** podnet makes that namespace, and plugins set it up. */
  readonly sandboxed?: true;
  /** What the guest is sent because of that link, once the link is known. */
  readonly taken?: TakenPlan;
  /** Refuses to change or remove the interface alone; absent where that is possible. */
  readonly refuseChange?: (field: string) => never;
}

/** The text of a tap that podnet makes. */
export const ownTap = ({ nic }: NicInterface): string =>
  `tap ${nic.tap} no_pi vnet_hdr, not persistent`;
