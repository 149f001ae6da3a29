import IPCIDR from "ip-cidr";
import { type Cidr, contains, type IpPrefix, networkOf, rangeOf } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { type IpRange, ipRangeText } from "../../core/ip-range.ts";
import { planAddresses } from "../../network/model/address-plan.ts";

export interface SubnetConfig {
  readonly cidr: Cidr;
  /** The gateway with the network's length. */
  readonly gateway: IpPrefix;
}

const refuse = (message: string, hint: string): PodnetError =>
  new PodnetError("ADDRESS_INVALID", message, { hint });

/**
 * First and last address of a network as ip-cidr computes them. It is asked only what our own
 * strict parser has already taken, since it is blind to the family and lets through /08, host bits
 * and zones; where the two disagree the configuration is refused rather than one of them believed.
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
 * A pool's network, with its gateway: see `planAddresses`. Throws `ADDRESS_INVALID`,
 * `ADDRESS_RESERVED`.
 */
export function parseSubnet(text: string, field?: string): SubnetConfig {
  const { network, gateway } = planAddresses(text, field);
  bounds(gateway);
  return { cidr: network, gateway };
}

/**
 * Checks that each range is in one of the subnets, and gives those of a subnet. Throws
 * `ADDRESS_INVALID`.
 */
export function divideRanges(
  ranges: readonly IpRange[],
  cidrs: readonly Cidr[],
): (cidr: Cidr) => readonly IpRange[] {
  for (const range of ranges) {
    const { first, last } = range;
    if (cidrs.some((each) => contains(each, first) && contains(each, last))) continue;
    const all = cidrs.join(" or ");
    throw refuse(`"${ipRangeText(range)}" is not inside ${all}`, `Name addresses of ${all} only`);
  }
  return (cidr) => ranges.filter(({ first }) => contains(cidr, first));
}
