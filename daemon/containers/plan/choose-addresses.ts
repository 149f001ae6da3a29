import type { CniIpRange } from "../../../cni/protocol/capabilities.ts";
import {
  type Cidr,
  contains,
  type Ip,
  ipFromBigInt,
  familyOf,
  type IpPrefix,
  ipOf,
  ipToBigInt,
  lengthOf,
  rangeOf,
  withLength,
} from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { AttachmentSnapshot, FreeSubnet } from "./snapshot.ts";

/**
 * Decides an attachment's addresses, one of each subnet: the requested address, else the subnet's
 * next free one. Pure. Throws `ADDRESS_OUT_OF_RANGE`, `ADDRESS_RESERVED`, `ADDRESS_IN_USE`,
 * `POOL_EXHAUSTED`, `INVALID_ARGUMENT`.
 */
export function chooseAddresses(
  asked: readonly Ip[],
  { network, subnets, asked: statuses }: AttachmentSnapshot,
): readonly IpPrefix[] {
  const cidrs = subnets.map(({ cidr }) => cidr).join(", ");
  const stray = asked.find((ip) => !subnets.some(({ cidr }) => contains(cidr, ip)));
  if (stray !== undefined)
    throw new PodnetError(
      "ADDRESS_OUT_OF_RANGE",
      `Address ${stray} is not in network "${network.name}" (${cidrs})`,
      { field: "ips", hint: `Ask for an address of ${cidrs}, or for none` },
    );
  return subnets.map(({ cidr, next }) => {
    const [wanted, second] = asked.filter((ip) => contains(cidr, ip));
    if (second !== undefined)
      throw new PodnetError("INVALID_ARGUMENT", `Two addresses of ${cidr} are asked for`, {
        field: "ips",
        hint: "Ask for one of each subnet at most",
      });
    if (wanted !== undefined) refuseTaken(wanted, statuses);
    const ip = wanted ?? next;
    if (ip === undefined) throw exhausted(network.name, cidr);
    return withLength(ip, lengthOf(cidr));
  });
}

function refuseTaken(ip: Ip, statuses: AttachmentSnapshot["asked"]): void {
  const status = statuses[ip] ?? { kind: "free" };
  if (status.kind === "free") return;
  throw status.kind === "reserved"
    ? new PodnetError("ADDRESS_RESERVED", `Address ${ip} is reserved: ${status.why}`, {
        field: "ips",
        hint: "Ask for another address, or for none",
      })
    : new PodnetError("ADDRESS_IN_USE", `Address ${ip} is held by ${status.by}`, {
        field: "ips",
        hint: "Ask for another address, or for none",
        details: { holder: status.by },
      });
}

const exhausted = (network: string, cidr: Cidr): PodnetError =>
  new PodnetError("POOL_EXHAUSTED", `Network "${network}" has no address left in ${cidr}`, {
    hint: "Delete pods or end containers that are not needed, or give the network more addresses",
    details: { network, subnet: cidr },
  });

/** Addresses of a set of ranges that are looked at for a free one. */
const mostTried = 65_536;

/**
 * The addresses that ranges of a capability leave to a subnet, in order; undefined where none is
 * about it. Pure. Throws `ADDRESS_OUT_OF_RANGE` for ranges of no subnet, and `GATEWAY_CONFLICT`
 * where they name another gateway than its own.
 */
export function rangesOf(
  sets: readonly (readonly CniIpRange[])[],
  subnets: readonly Pick<FreeSubnet, "cidr" | "gateway">[],
): (cidr: Cidr) => Iterable<Ip> | undefined {
  const all = sets.flat();
  for (const range of all) {
    const within = subnets.find(({ cidr }) => isWithin(range, cidr));
    if (within === undefined)
      throw new PodnetError(
        "ADDRESS_OUT_OF_RANGE",
        `Range ${range.subnet} is not in ${subnets.map(({ cidr }) => cidr).join(", ")}`,
        { field: "runtimeConfig.ipRanges", hint: "Ask for ranges of the network's own subnets" },
      );
    if (range.gateway !== undefined && range.gateway !== ipOf(within.gateway))
      throw new PodnetError(
        "GATEWAY_CONFLICT",
        `The gateway of ${within.cidr} is ${ipOf(within.gateway)}, not ${range.gateway}`,
        { field: "runtimeConfig.ipRanges", hint: "Leave the gateway out: it is the network's" },
      );
  }
  return (cidr) => {
    const own = all.filter((range) => isWithin(range, cidr));
    return own.length === 0 ? undefined : addressesOf(own);
  };
}

const isWithin = ({ subnet, rangeStart, rangeEnd }: CniIpRange, cidr: Cidr): boolean =>
  [ipOf(subnet), rangeStart ?? ipOf(subnet), rangeEnd ?? ipOf(subnet)].every((ip) =>
    contains(cidr, ip),
  ) && lengthOf(subnet) >= lengthOf(cidr);

function* addressesOf(ranges: readonly CniIpRange[]): Generator<Ip> {
  let tried = 0;
  for (const { subnet, rangeStart, rangeEnd } of ranges) {
    const { first, last } = rangeOf(subnet);
    const from = rangeStart === undefined ? first : ipToBigInt(rangeStart);
    const to = rangeEnd === undefined ? last : ipToBigInt(rangeEnd);
    for (let at = from; at <= to && tried < mostTried; at++, tried++)
      yield ipFromBigInt(familyOf(subnet), at);
  }
}
