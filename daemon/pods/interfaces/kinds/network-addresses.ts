import { bareIp, hasLength, type InterfaceSpec } from "../../../../api/pod-spec.ts";
import {
  contains,
  type Ip,
  type IpPrefix,
  ipOf,
  lengthOf,
  withLength,
} from "../../../../core/address.ts";
import { PodnetError } from "../../../../core/errors.ts";
import type { NetworkSnapshot, SubnetSnapshot } from "../../plan/snapshot.ts";
import { addressHeld, ownOther } from "./address-held.ts";
import type { Planning } from "./kind.ts";

/**
 * The requested addresses on a network; else those that the interface has, or one of each of the
 * network's pools. Throws `ADDRESS_OUT_OF_RANGE`, `ADDRESS_RESERVED`, `ADDRESS_IN_USE`,
 * `POOL_EXHAUSTED`.
 */
export function networkAddresses(
  { addresses }: InterfaceSpec,
  network: NetworkSnapshot,
  planning: Planning,
): readonly IpPrefix[] {
  const { field, was, others, requests } = planning;
  const taken = new Set(
    others.flatMap((each) => (each.network === network.name ? each.addresses.map(ipOf) : [])),
  );
  if (addresses === undefined) {
    if (was !== undefined) return was.addresses;
    // An automatic interface never gets an address that another one of the request names.
    for (const request of requests) for (const ip of request.addresses ?? []) taken.add(bareIp(ip));
    return network.subnets.map((subnet) =>
      withLength(nextFree(network, subnet, taken, field), lengthOf(subnet.cidr)),
    );
  }
  return addresses.map((asked, i) => {
    const at = addresses.length > 1 ? `${field}.addresses[${i}]` : `${field}.address`;
    const ip = bareIp(asked);
    const { cidr } = requestable(ip, network, at, was?.addresses.map(ipOf).includes(ip) === true);
    if (taken.has(ip)) throw addressHeld(ip, ownOther, at);
    taken.add(ip);
    return hasLength(asked) ? asked : withLength(ip, lengthOf(cidr));
  });
}

/** The subnet of an address that nothing else has. `own`: the interface itself has the address. */
function requestable(
  ip: Ip,
  network: NetworkSnapshot,
  field: string,
  own: boolean,
): SubnetSnapshot {
  const subnet = network.subnets.find(({ cidr }) => contains(cidr, ip));
  if (subnet === undefined) {
    const cidrs = network.subnets.map(({ cidr }) => cidr).join(", ");
    throw new PodnetError(
      "ADDRESS_OUT_OF_RANGE",
      `Address ${ip} is not in network "${network.name}" (${cidrs})`,
      { field, hint: `Ask for an address of ${cidrs}, or for none` },
    );
  }
  const status = subnet.asked[ip];
  if (own || status === undefined) return subnet;
  if (status.kind === "reserved")
    throw new PodnetError("ADDRESS_RESERVED", `Address ${ip} is reserved: ${status.why}`, {
      field,
      hint: "Ask for another address, or for none",
    });
  if (status.kind === "held") throw addressHeld(ip, status.by, field);
  return subnet;
}

function nextFree(
  network: NetworkSnapshot,
  subnet: SubnetSnapshot,
  taken: ReadonlySet<Ip>,
  field: string,
): Ip {
  const ip = subnet.nextFree.find((each) => !taken.has(each));
  if (ip !== undefined) return ip;
  throw new PodnetError(
    "POOL_EXHAUSTED",
    `Network "${network.name}" (${subnet.cidr}) has no free address`,
    {
      field: `${field}.network`,
      hint: "Delete pods, or configure a larger network",
    },
  );
}
