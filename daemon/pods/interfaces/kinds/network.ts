import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import { ipOf } from "../../../../core/address.ts";
import { PodnetError } from "../../../../core/errors.ts";
import type { NetworkName } from "../../../../core/names.ts";
import { didYouMean } from "../../../../core/nearest.ts";
import { ownTap, type PlannedKind } from "./planned-kind.ts";
import type { InterfaceKind, Planning } from "./kind.ts";
import { networkAddresses } from "./network-addresses.ts";
import { noVlans } from "./no-vlans.ts";

/**
 * An interface on a network of podnet's. Throws `NETWORK_NOT_FOUND`, `BRIDGE_CONFLICT` for its
 * VLAN, and as `networkAddresses`.
 */
export function networkKind(
  name: NetworkName,
  request: InterfaceSpec,
  planning: Planning,
): InterfaceKind {
  const { port } = request;
  const { field, snapshot, was } = planning;
  const network = snapshot.networks.find((each) => each.name === name);
  if (network === undefined) {
    const names = snapshot.networks.map((each) => each.name);
    throw new PodnetError("NETWORK_NOT_FOUND", `There is no network "${name}"`, {
      field: `${field}.network`,
      hint: `${didYouMean(name, names)}Networks are: ${names.join(", ")}`,
    });
  }
  const { bridge, mtu, vlanFiltering } = network;
  if (port?.vlan !== undefined && !vlanFiltering)
    throw noVlans(bridge, field, `turn it on: podnet network update ${name} --vlan-filtering`);
  const addresses = networkAddresses(request, network, planning);
  const fresh = network.subnets.flatMap((subnet) => subnet.fresh ?? []);
  const kept = was?.fresh === true ? was.addresses : [];
  const isFresh = addresses.every((each) => fresh.includes(ipOf(each)) || kept.includes(each));
  return {
    title: `network "${name}"`,
    mtu,
    hasNic: true,
    part: {
      network: name,
      bridge,
      ...(port === undefined ? {} : { port }),
      addresses,
      ...(isFresh ? { fresh: true as const } : {}),
    },
  };
}

/**
 * The network that an interface asks for; undefined for interfaces on none of podnet's networks.
 */
export const networkAsked = (each: InterfaceSpec): NetworkName | undefined =>
  each.kind === undefined ? each.network : undefined;

export const networkPlanned: PlannedKind = { whither: ({ network }) => network ?? "", tap: ownTap };
