import {
  type Cidr,
  familyOf,
  type Ip,
  type IpPrefix,
  ipFromBigInt,
  ipOf,
  ipToBigInt,
  lengthOf,
  networkOf,
  overlaps,
  parseIpPrefix,
  rangeOf,
  withLength,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";

/** The addresses that a configured subnet defines. */
export interface AddressPlan {
  /** The subnet pods get their addresses from. */
  readonly network: Cidr;
  /** The bridge's own address: the pods' gateway, with the subnet's length. */
  readonly gateway: IpPrefix;
  /** Never given to a pod: network, gateway and, with IPv4, broadcast; in address order. */
  readonly reserved: readonly Ip[];
}

/** Prefix lengths that leave room for a gateway and a pod, and that the allocator can hold. */
const lengths = { 4: { shortest: 8, longest: 30 }, 6: { shortest: 32, longest: 126 } } as const;

// Addresses no host on an Ethernet can have as its own (RFC 6890), and multicast.
const unusable = [
  "0.0.0.0/8",
  "127.0.0.0/8",
  "224.0.0.0/3",
  // IPv4 addresses in IPv6 clothes, which commands of the host write another way, and ::1.
  "::/96",
  "::ffff:0.0.0.0/96",
  "fe80::/10",
  "ff00::/8",
] as Cidr[];

/**
 * Reads a configured subnet, as runv reads its `BridgeIP`: a network address (`192.168.123.0/24`)
 * means its first address is the gateway, host bits (`192.168.123.254/24`) mean exactly that
 * address is.
 *
 * Throws `ADDRESS_INVALID` when the text is no address with a length, the length leaves no room
 * (IPv4 /8 to /30, IPv6 /32 to /126) or the block cannot be a subnet; `ADDRESS_RESERVED` when the
 * gateway would be the broadcast address.
 */
export function planAddresses(text: string, field = "cidr"): AddressPlan {
  const given = parseIpPrefix(text, field);
  const network = networkOf(given);
  const family = familyOf(given);
  const length = lengthOf(given);
  const { shortest, longest } = lengths[family];
  if (length < shortest || length > longest) {
    throw new PodnetError("ADDRESS_INVALID", `A pod network cannot be a /${length}, "${given}"`, {
      field,
      hint: `Choose an IPv${family} prefix length from ${shortest} to ${longest}`,
    });
  }
  const bad = unusable.find((block) => overlaps(block, network));
  if (bad !== undefined) {
    throw new PodnetError("ADDRESS_INVALID", `"${given}" lies in ${bad}, where no pod can live`, {
      field,
      hint: "Choose a private subnet, such as 192.168.123.0/24 or fd00:123::/64",
    });
  }
  const { first, last } = rangeOf(network);
  const asked = ipToBigInt(ipOf(given));
  const gateway = asked === first ? first + 1n : asked;
  if (family === 4 && gateway === last) {
    throw new PodnetError("ADDRESS_RESERVED", `"${ipOf(given)}" is the broadcast address`, {
      field,
      hint: `Choose a gateway inside ${network}, or write ${network} to take its first address`,
    });
  }
  const reserved = family === 4 ? [first, gateway, last] : [first, gateway];
  return {
    network,
    gateway: withLength(ipFromBigInt(family, gateway), length),
    reserved: reserved.map((value) => ipFromBigInt(family, value)),
  };
}
