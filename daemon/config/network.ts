import type * as z from "zod";
import {
  changedLimits,
  type LimitsChange,
  type RateLimits,
  validateLimits,
} from "../../core/rate-limits.ts";
import { familyOf, parseCidr, parseIp } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { checkConnectionShare, usualShare } from "../../core/connection-share.ts";
import { parseHostAccess } from "../../core/host-access.ts";
import { parseIpRange } from "../../core/ip-range.ts";
import { parseIfName, parseNetworkName } from "../../core/names.ts";
import type { NetworkDefinition } from "./network-definition.ts";
import { divideRanges, parseSubnet, type SubnetConfig } from "./cidr.ts";
import type { Reader } from "./reader.ts";
import type { configSchema } from "./schema.ts";

type Network = z.infer<typeof configSchema>["network"];

/** The network's settings; a second subnet is optional. */
export type NetworkValues = Omit<Network, "cidr6"> & Partial<Pick<Network, "cidr6">>;

const noLimits = { bandwidth: "", burst: "", packets: "" };

/** The default network of the configuration. */
export function networkConfig(network: NetworkValues, read: Reader): NetworkDefinition {
  const subnets = subnetsOf(network, read);
  const cidrs = subnets.map(({ cidr }) => cidr);
  const divide = (key: string, list: readonly string[]) =>
    read(key, list, (texts) =>
      divideRanges(
        texts.map((text) => parseIpRange(text)),
        cidrs,
      ),
    );
  const ranges = divide("network.ranges", network.ranges);
  const reserved = divide("network.reserved", network.reserved);
  const admit = read("network.admit", network.admit, (list) => list.map((text) => parseCidr(text)));
  const hostAccess = read("network.host_access", network.host_access, parseHostAccess);
  const connections = read("network.connections", network.connections, checkConnectionShare);
  const limits = limitsOf(network, read);
  return {
    name: read("network.name", network.name, parseNetworkName),
    bridge: read("network.bridge", network.bridge, parseIfName),
    subnets: subnets.map(({ cidr, gateway }) => ({
      cidr,
      gateway,
      ranges: ranges(cidr),
      reserved: reserved(cidr),
    })),
    mtu: read("network.mtu", network.mtu, (mtu) => checkMtu(mtu, subnets)),
    dns: read("network.dns", network.dns, (list) => list.map((text) => parseIp(text))),
    dnsSearch: network.dns_search,
    masquerade: network.masquerade,
    isolated: network.isolated,
    ...(network.cloud_metadata ? { cloudMetadata: true } : {}),
    ...(network.accept_translated ? { acceptTranslated: true } : {}),
    ...(admit.length === 0 ? {} : { admit }),
    ...(hostAccess.length === 0 ? {} : { hostAccess }),
    ...(connections === usualShare ? {} : { connections }),
    ...(limits === undefined ? {} : { limits }),
    vlanFiltering: network.vlan_filtering,
    mayOverlap: false,
  };
}

/** `none` is what a network without limits has. */
function limitsOf(network: NetworkValues, read: Reader): RateLimits | undefined {
  const limit = (
    key: "limit_in" | "limit_out" | "packets_in" | "packets_out",
    direction: "in" | "out",
    field: "bandwidth" | "packets",
  ): LimitsChange =>
    read(`network.${key}`, network[key], (text) =>
      text === "none" ? {} : readLimit(direction, { ...noLimits, [field]: text }),
    );
  return [
    limit("limit_in", "in", "bandwidth"),
    limit("limit_out", "out", "bandwidth"),
    limit("packets_in", "in", "packets"),
    limit("packets_out", "out", "packets"),
  ].reduce(changedLimits, undefined);
}

const readLimit = (direction: "in" | "out", limit: typeof noLimits): LimitsChange =>
  validateLimits({ [direction]: limit }, "network");

function subnetsOf({ cidr, cidr6 }: NetworkValues, read: Reader): SubnetConfig[] {
  const first = read("network.cidr", cidr, parseSubnet);
  if (cidr6 === undefined) return [first];
  const second = read("network.cidr6", cidr6, parseSubnet);
  return read("network.cidr6", second, () => {
    if (familyOf(second.cidr) === 6 && familyOf(first.cidr) === 4) return [first, second];
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `a network has one IPv4 and one IPv6 subnet, these are ${first.cidr} and ${second.cidr}`,
      { hint: "Give cidr an IPv4 subnet and cidr6 an IPv6 one; an IPv6 subnet alone is cidr" },
    );
  });
}

/** RFC 8200 section 5: IPv6 asks for 1280. */
function checkMtu(mtu: number, subnets: readonly SubnetConfig[]): number {
  if (mtu >= 1280 || subnets.every(({ cidr }) => familyOf(cidr) === 4)) return mtu;
  throw new PodnetError("MTU_OUT_OF_RANGE", `IPv6 needs an MTU of 1280, not ${mtu}`, {
    hint: "Set mtu to 1280 or more",
  });
}
