import {
  type Cidr,
  type Family,
  familyBits,
  familyOf,
  type Ip,
  ipFromBigInt,
  ipToBigInt,
  lengthOf,
  networkOf,
  parseIp,
  parseIpPrefix,
  rangeOf,
} from "../../core/address.ts";
import { type PodnetError, isPodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { type Backend, parseBackend } from "./backend.ts";
import { broken, type Fields, fieldsOf, flagOf, jsonOf, textOf, wholeOf } from "./json.ts";

/** The space from which hosts' subnets of one family are taken. */
export interface SubnetSpace {
  readonly network: Cidr;
  /** Length of each host's subnet. */
  readonly length: number;
  /** Base address of the first and of the last subnet that may be handed out. */
  readonly first: Ip;
  readonly last: Ip;
}

/** An overlay's configuration, with flannel's defaults filled in. At least one family is there. */
export interface OverlayConfig {
  readonly v4: SubnetSpace | undefined;
  readonly v6: SubnetSpace | undefined;
  readonly nftables: boolean;
  readonly backend: Backend;
}

/**
 * The rules of one family: names of its keys, longest subnet, longest network, and the length that
 * is usual.
 */
const families = {
  4: { prefix: "", network: "Network", longest: 30, longestNetwork: 28, usual: 24 },
  6: { prefix: "IPv6", network: "IPv6Network", longest: 126, longestNetwork: 124, usual: 64 },
} as const;

/**
 * Reads the value of `<prefix>/config` by flannel's rules. Throws `OVERLAY_CONFIG_INVALID`, with
 * the rule in its details.
 */
export function parseConfig(text: string): OverlayConfig {
  const fields = fieldsOf(jsonOf(text));
  if (fields === undefined)
    throw broken(
      "json",
      "config",
      "The overlay's configuration is no JSON object",
      'Write one such as {"Network": "10.77.0.0/16", "Backend": {"Type": "vxlan"}}',
    );
  const v4 = flagOf(fields, "EnableIPv4", true) ? spaceOf(fields, 4) : undefined;
  const v6 = flagOf(fields, "EnableIPv6", false) ? spaceOf(fields, 6) : undefined;
  if (v4 === undefined && v6 === undefined)
    throw broken(
      "families",
      "EnableIPv4",
      "Neither IPv4 nor IPv6 is on",
      "Set EnableIPv4 or EnableIPv6 to true",
    );
  return {
    v4,
    v6,
    nftables: flagOf(fields, "EnableNFTables", false),
    backend: parseBackend(fields.get("backend")),
  };
}

function spaceOf(fields: Fields, family: Family): SubnetSpace {
  const { network: key, prefix } = families[family];
  const network = networkIn(textOf(fields, key), key, family);
  const length = subnetLength(fields, network, family);
  const size = 1n << BigInt(familyBits(family) - length);
  const { first, last } = rangeOf(network);
  const bound = (name: "Min" | "Max", otherwise: bigint): Ip => {
    const field = `${prefix}Subnet${name}`;
    const written = textOf(fields, field);
    return written === ""
      ? ipFromBigInt(family, otherwise)
      : boundIn(written, { field, network, size });
  };
  // The first subnet is left out unless asked for: its base is the network's own address.
  const min = bound("Min", first + size);
  const max = bound("Max", last + 1n - size);
  if (ipToBigInt(min) > ipToBigInt(max))
    throw broken(
      "order",
      `${prefix}SubnetMin`,
      `The first subnet, ${min}, is behind the last, ${max}`,
      "Write the lower one as Min",
    );
  return { network, length, first: min, last: max };
}

function networkIn(text: string, field: string, family: Family): Cidr {
  const hint = `Write a network of IPv${family} such as ${family === 4 ? "10.77.0.0/16" : "fd00:77::/48"}`;
  if (text === "") throw broken("network-missing", field, `${field} is missing`, hint);
  const network = readable(() => networkOf(parseIpPrefix(text)));
  if (network === undefined || familyOf(network) !== family)
    throw broken("network", field, `"${printable(text)}" is no network of IPv${family}`, hint);
  return network;
}

/** At least four subnets are in a network. */
function subnetLength(fields: Fields, network: Cidr, family: Family): number {
  const { prefix, longest, longestNetwork, usual } = families[family];
  const field = `${prefix}SubnetLen`;
  const shortest = lengthOf(network) + 2;
  const length = wholeOf(fields, field, 0, [0, familyBits(family)]);
  if (length === 0) {
    if (lengthOf(network) <= longestNetwork) return Math.max(usual, shortest);
    throw broken(
      "network-small",
      families[family].network,
      `${network} is too small to be divided`,
      `Write a network of /${longestNetwork} or larger`,
    );
  }
  if (length > longest)
    throw broken(
      "subnet-small",
      field,
      `A subnet of /${length} has no room for pods`,
      `Write ${longest} or less`,
    );
  if (length < shortest)
    throw broken(
      "subnet-large",
      field,
      `${network} does not hold four subnets of /${length}`,
      `Write ${shortest} or more`,
    );
  return length;
}

function boundIn(
  text: string,
  { field, network, size }: { field: string; network: Cidr; size: bigint },
): Ip {
  const ip = readable(() => parseIp(text));
  if (ip === undefined)
    throw broken("bound", field, `"${printable(text)}" is no address`, "Write a subnet's base");
  const { first, last } = rangeOf(network);
  const value = ipToBigInt(ip);
  if (familyOf(ip) !== familyOf(network) || value < first || value > last)
    throw broken(
      "bound-outside",
      field,
      `${ip} is not in ${network}`,
      `Write the base of a subnet in ${network}`,
    );
  if (value % size !== 0n)
    throw broken(
      "bound-inside",
      field,
      `${ip} is inside a subnet`,
      `Write its base, ${ipFromBigInt(familyOf(ip), value - (value % size))}`,
    );
  return ip;
}

/** The result of a parser; undefined if it refuses. */
export function readable<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch (error) {
    if (!isPodnetError(error, "ADDRESS_INVALID", "MAC_INVALID")) throw error;
    return undefined;
  }
}

/** Why a configuration cannot be used, or the configuration. */
export function configOrTrouble(text: string): OverlayConfig | PodnetError {
  try {
    return parseConfig(text);
  } catch (error) {
    if (!isPodnetError(error, "OVERLAY_CONFIG_INVALID")) throw error;
    return error;
  }
}
