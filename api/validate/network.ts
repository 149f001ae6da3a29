import { type Cidr, familyOf, parseCidr, parseIpPrefix } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { checkConnectionShare, usualShare } from "../../core/connection-share.ts";
import { type HostAccess, mostHostAccess, parseHostAccess } from "../../core/host-access.ts";
import { parseIpRange } from "../../core/ip-range.ts";
import { parseIfName, parseNetworkName } from "../../core/names.ts";
import { checkCount, invalid } from "../fields.ts";
import type * as wire from "../gen/podnet/v1/network_service_pb.ts";
import type { NetworkSpec, SubnetSpec } from "../network-spec.ts";
import { changedLimits, validateLimits } from "../../core/rate-limits.ts";
import { validateServers, validateSearch } from "./dns.ts";

const most = { ranges: 64, admit: 64 } as const;
/**
 * A tap's frame is the largest the kernel takes; RFC 791 and RFC 8200 say what a link has to carry.
 */
const mtus = { default: 1500, least: 576, leastIpv6: 1280, most: 65521 } as const;

/**
 * Checks a network that is to be made, or what one is to become. `field` of an error is the path
 * within the spec.
 */
export function validateNetwork(spec: wire.NetworkSpec | undefined): NetworkSpec {
  if (spec === undefined)
    throw invalid("spec", "No network is described", "Give its name and a subnet");
  const { bridge, dns, dnsSearch, masquerade = true, isolated, vlanFiltering, resolver } = spec;
  const { cloudMetadata, acceptTranslated } = spec;
  const admit = validateAdmit(spec.admit);
  const hostAccess = validateHostAccess(spec.hostAccess);
  const connections = checkConnectionShare(spec.connections ?? usualShare);
  const limits = changedLimits(undefined, validateLimits(spec.limits, "limits"));
  const name = parseNetworkName(spec.name, "name");
  const subnets = validateSubnets(spec.subnets);
  return {
    name,
    ...(bridge === "" ? {} : { bridge: parseIfName(bridge, "bridge") }),
    subnets,
    mtu: validateMtu(spec.mtu, subnets),
    dns: validateServers(dns, "dns"),
    dnsSearch: validateSearch(dnsSearch, "dns_search"),
    masquerade,
    isolated,
    vlanFiltering,
    ...(resolver === undefined ? {} : { resolver }),
    ...(cloudMetadata ? { cloudMetadata } : {}),
    ...(acceptTranslated ? { acceptTranslated } : {}),
    ...(admit.length === 0 ? {} : { admit }),
    ...(hostAccess.length === 0 ? {} : { hostAccess }),
    ...(connections === usualShare ? {} : { connections }),
    ...(limits === undefined ? {} : { limits }),
    // (podnetd reads it when it plans: this module does not know what policies are.)
    ...(spec.policy === undefined ? {} : { policy: spec.policy }),
  };
}

function validateAdmit(texts: readonly string[]): Cidr[] {
  checkCount(texts, most.admit, "admit");
  return texts.map((text, i) => parseCidr(text, `admit[${i}]`));
}

function validateHostAccess(texts: readonly string[]): HostAccess {
  checkCount(texts, mostHostAccess, "host_access");
  return parseHostAccess(texts, "host_access");
}

/** IPv4 first. */
function validateSubnets(subnets: readonly wire.SubnetSpec[]): SubnetSpec[] {
  if (subnets.length === 0)
    throw invalid("subnets", "A network needs a subnet", "Give one, such as 10.20.0.0/24");
  checkCount(subnets, 2, "subnets");
  const checked = subnets.map((subnet, i) => validateSubnet(subnet, `subnets[${i}]`));
  const families = checked.map(({ cidr }) => familyOf(cidr));
  if (new Set(families).size < families.length)
    throw invalid(
      "subnets[1].cidr",
      `Both subnets are of IPv${families[0]}`,
      "A network has at most one subnet of each address family: make another network",
    );
  return checked.toSorted((a, b) => familyOf(a.cidr) - familyOf(b.cidr));
}

function validateSubnet({ cidr, ranges, reserved }: wire.SubnetSpec, field: string): SubnetSpec {
  const read = (texts: readonly string[], name: string) => {
    checkCount(texts, most.ranges, `${field}.${name}`);
    return texts.map((text, i) => parseIpRange(text, `${field}.${name}[${i}]`));
  };
  return {
    cidr: parseIpPrefix(cidr, `${field}.cidr`),
    ranges: read(ranges, "ranges"),
    reserved: read(reserved, "reserved"),
  };
}

function validateMtu(asked: number | undefined, subnets: readonly SubnetSpec[]): number {
  const mtu = asked ?? mtus.default;
  const ipv6 = subnets.some(({ cidr }) => familyOf(cidr) === 6);
  const least = ipv6 ? mtus.leastIpv6 : mtus.least;
  if (mtu >= least && mtu <= mtus.most) return mtu;
  throw new PodnetError("MTU_OUT_OF_RANGE", `MTU ${mtu} is not between ${least} and ${mtus.most}`, {
    field: "mtu",
    hint: `Use ${least} to ${mtus.most}${ipv6 ? ", as IPv6 requires" : ""}, or leave it out for ${mtus.default}`,
  });
}
