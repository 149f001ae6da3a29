import type { InterfacePlan, NicInterface } from "../../store/pod-plan.ts";

/** What is said of a planned interface to people. */
export interface InterfaceText {
  /** Where it leads. */
  whither(each: InterfacePlan): string;
  /** The host's end of its NIC. */
  tap(each: NicInterface): string;
}

/** Of a tap that podnet makes. */
export const ownTap = ({ nic }: NicInterface): string =>
  `tap ${nic.tap} no_pi vnet_hdr, not persistent`;
