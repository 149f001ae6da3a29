import type { CniSpec, InterfaceSpec } from "../../../../api/pod-spec.ts";
import { planCni } from "../plan-cni.ts";
import { heldAddresses } from "./held-addresses.ts";
import type { InterfaceText } from "./interface-text.ts";
import type { InterfaceKind, Planning } from "./kind.ts";

/** Ethernet's. */
const usualMtu = 1500;

/**
 * An interface on a link of CNI plugins; its MAC, MTU and addresses are the link's, once that
 * exists.
 */
export function cniKind(cni: CniSpec, request: InterfaceSpec, planning: Planning): InterfaceKind {
  const { position, snapshot } = planning;
  return {
    title: "a link of CNI plugins",
    mtu: usualMtu,
    hasNic: true,
    part: {
      cni: planCni(cni, snapshot.podId, position, snapshot.cni),
      addresses: heldAddresses(request, planning),
    },
  };
}

/** The link of CNI plugins that an interface asks for; undefined for other kinds. */
export const cniAsked = (each: InterfaceSpec): CniSpec | undefined =>
  each.kind === "cni" ? each.cni : undefined;

export const cniText: InterfaceText = {
  whither: ({ cni }) =>
    `${cni?.link ?? ""} of ${cni?.netns ?? ""}, from which it takes over all else`,
  tap: ({ nic, cni }) =>
    `tap ${nic.tap} in ${cni?.netns ?? ""}, redirected to ${cni?.link ?? ""} and back`,
};
