import type { InterfacePlan, NicInterface } from "../../store/pod-plan.ts";

/** The texts about a planned interface for people. */
export interface InterfaceText {
  /** Where the interface leads. */
  whither(each: InterfacePlan): string;
  /** The host's end of its NIC. */
  tap(each: NicInterface): string;
}

/** The text of a tap that podnet makes. */
export const ownTap = ({ nic }: NicInterface): string =>
  `tap ${nic.tap} no_pi vnet_hdr, not persistent`;
