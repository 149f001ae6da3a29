import IPCIDR from "ip-cidr";
import {
  type Cidr,
  contains,
  familyBits,
  familyOf,
  type Ip,
  ipFromBigInt,
  ipOf,
  type IpPrefix,
  ipToBigInt,
  isLoopback,
  lengthOf,
  networkOf,
  parseIp,
  parseIpPrefix,
  rangeOf,
  withLength,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";

export interface IpRange {
  readonly first: Ip;
  readonly last: Ip;
}

export interface SubnetConfig {
  readonly cidr: Cidr;
  /** The gateway with the network's length. */
  readonly gateway: IpPrefix;
}

const refuse = (message: string, hint: string): PodnetError =>
  new PodnetError("ADDRESS_INVALID", message, { hint });

/**
 * First and last address of a network as ip-cidr computes them. It is asked only what our own strict
 * parser has already taken, since it is blind to the family and lets through /08, host bits and zones;
 * where the two disagree the configuration is refused rather than one of them believed.
 */
function bounds(prefix: IpPrefix): { first: bigint; last: bigint } {
  const own = rangeOf(networkOf(prefix));
  if (!IPCIDR.isValidCIDR(prefix))
    throw refuse(`"${prefix}" is not a network`, "Write 192.168.123.0/24");
  const other = new IPCIDR(prefix);
  const first = other.start<bigint>({ type: "bigInteger" });
  const last = other.end<bigint>({ type: "bigInteger" });
  if (first !== own.first || last !== own.last) {
    throw refuse(
      `"${prefix}" is read in two ways`,
      "Write the network's first address and its length",
    );
  }
  return own;
}

/**
 * A pool's network: a network address means its first address is the gateway, host bits mean exactly
 * that address. Sizes from /30 to /8 (IPv6: /126 to /48). Throws `ADDRESS_INVALID`.
 */
export function parseSubnet(text: string): SubnetConfig {
  const prefix = parseIpPrefix(text);
  const family = familyOf(prefix);
  const length = lengthOf(prefix);
  const { first, last } = bounds(prefix);
  const [longest, shortest] = family === 4 ? [30, 8] : [126, 48];
  if (length > longest || length < shortest) {
    throw refuse(
      `"${text}" is too ${length > longest ? "small" : "large"} for a pool`,
      `Use a length from /${shortest} to /${longest}`,
    );
  }
  const lead = family === 4 ? Number(first >> 24n) : Number(first >> 120n);
  if (isLoopback(ipOf(prefix)) || lead === 0 || (family === 4 ? lead >= 224 : lead === 0xff)) {
    throw refuse(
      `"${text}" cannot be used for pods`,
      "Use a private network such as 192.168.123.0/24",
    );
  }
  const asked = ipToBigInt(ipOf(prefix));
  const gateway = asked === first ? first + 1n : asked;
  if (gateway === last && family === 4) {
    throw refuse(
      `"${text}" names the broadcast address as the gateway`,
      "Name another address of the network",
    );
  }
  return { cidr: networkOf(prefix), gateway: withLength(ipFromBigInt(family, gateway), length) };
}

/** A range inside a network: an address, a network, or `FIRST-LAST`. Throws `ADDRESS_INVALID`. */
export function parseRange(text: string, within: Cidr): IpRange {
  const range = readRange(text);
  for (const end of [range.first, range.last]) {
    if (!contains(within, end)) {
      throw refuse(`"${text}" is not inside ${within}`, `Reserve addresses of ${within} only`);
    }
  }
  if (ipToBigInt(range.first) > ipToBigInt(range.last)) {
    throw refuse(`"${text}" ends before it starts`, "Write the lower address first");
  }
  return range;
}

function readRange(text: string): IpRange {
  if (text.includes("/")) {
    const prefix = parseIpPrefix(text);
    const { first, last } = bounds(prefix);
    return {
      first: ipFromBigInt(familyOf(prefix), first),
      last: ipFromBigInt(familyOf(prefix), last),
    };
  }
  const dash = text.indexOf("-");
  if (dash < 0) return { first: parseIp(text), last: parseIp(text) };
  return { first: parseIp(text.slice(0, dash).trim()), last: parseIp(text.slice(dash + 1).trim()) };
}

/** Whether an address is one a host can have: neither network nor broadcast address. */
export function isHostAddress(network: Cidr, ip: Ip): boolean {
  const { first, last } = rangeOf(network);
  const value = ipToBigInt(ip);
  if (familyBits(familyOf(network)) - lengthOf(network) < 2) return true;
  return value !== first && (familyOf(network) === 6 || value !== last);
}
