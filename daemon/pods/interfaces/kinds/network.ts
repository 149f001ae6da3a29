import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import { contains, ipOf } from "../../../../core/address.ts";
import { PodnetError } from "../../../../core/errors.ts";
import type { NetworkName } from "../../../../core/names.ts";
import type { Snapshot } from "../../plan/snapshot.ts";
import { type InterfaceText, ownTap } from "./interface-text.ts";
import { noVlans } from "./no-vlans.ts";
import type { Place } from "./place.ts";

/** Finds a network of podnet's. Throws `NETWORK_NOT_FOUND`, and `BRIDGE_CONFLICT` for its VLAN. */
export function networkPlace(
  name: NetworkName,
  { port: { vlan } = {} }: Pick<InterfaceSpec, "port">,
  snapshot: Snapshot,
  field: string,
): Place {
  const network = snapshot.networks.find((each) => each.name === name);
  if (network === undefined)
    throw new PodnetError("NETWORK_NOT_FOUND", `There is no network "${name}"`, {
      field: `${field}.network`,
      hint: `Networks are: ${snapshot.networks.map((each) => each.name).join(", ")}`,
    });
  const { bridge, mtu, vlanFiltering } = network;
  if (vlan !== undefined && !vlanFiltering)
    throw noVlans(bridge, field, `turn it on: podnet network update ${name} --vlan-filtering`);
  return {
    mtu,
    title: `network "${name}"`,
    hasNic: true,
    keepsTap: false,
    room: { bridge, used: network.ports },
    addresses: (wish, choice) => choice.ofNetwork(wish, network),
    gateways: (addresses) =>
      network.subnets
        .filter(({ cidr }) => addresses.some((address) => contains(cidr, ipOf(address))))
        .map(({ gateway }) => ({ gateway: ipOf(gateway) })),
    planned: ({ wanted: { port } }) => ({
      network: network.name,
      bridge,
      ...(port === undefined ? {} : { port }),
    }),
  };
}

/**
 * The network that an interface asks for; undefined for interfaces on none of podnet's networks.
 */
export const networkAsked = (each: InterfaceSpec): NetworkName | undefined =>
  each.kind === undefined ? each.network : undefined;

export const networkText: InterfaceText = { whither: ({ network }) => network ?? "", tap: ownTap };
