import IPCIDR from "ip-cidr";
import {
  type Cidr,
  contains,
  familyOf,
  type Ip,
  ipFromBigInt,
  type IpPrefix,
  ipToBigInt,
  networkOf,
  parseIp,
  parseIpPrefix,
  rangeOf,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { planAddresses } from "../../network/address-plan.ts";

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

/** A pool's network, with its gateway: see `planAddresses`. Throws `ADDRESS_INVALID`, `ADDRESS_RESERVED`. */
export function parseSubnet(text: string): SubnetConfig {
  const { network, gateway } = planAddresses(text);
  bounds(gateway);
  return { cidr: network, gateway };
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
