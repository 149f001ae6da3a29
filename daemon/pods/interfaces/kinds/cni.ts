import type { CniSpec, InterfaceSpec } from "../../../../api/pod-spec.ts";
import { planCni, refuseCniChange } from "../plan-cni.ts";
import { heldAddresses } from "./held-addresses.ts";
import type { InterfaceText } from "./interface-text.ts";
import type { Place, Wish } from "./place.ts";

/** Ethernet's. */
const usualMtu = 1500;

/**
 * An interface on a link of CNI plugins; its MAC, MTU and addresses are the link's, once that
 * exists. Throws `UNSUPPORTED` for a running pod.
 */
export function cniPlace(cni: CniSpec, { was, field }: Wish): Place {
  if (was !== undefined || field === "interface") refuseCniChange(`${field}.cni`);
  return {
    mtu: usualMtu,
    title: "a link of CNI plugins",
    hasNic: true,
    keepsTap: false,
    addresses: heldAddresses,
    gateways: () => [],
    planned: ({ position }, snapshot) => ({
      cni: planCni(cni, snapshot.podId, position, snapshot.cni),
    }),
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
