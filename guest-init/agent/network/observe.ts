import {
  type Cidr,
  familyOf,
  type IpPrefix,
  ipOf,
  isLoopback,
  parseIpPrefix,
} from "../../../core/address.ts";
import { parseIfName } from "../../../core/names.ts";
import type { LinkAddress } from "../../../linux/rtnetlink/address.ts";
import type { LinkState } from "../../../linux/rtnetlink/links/link.ts";
import type { Route } from "../../../linux/rtnetlink/route.ts";
import type { Scope } from "../../../linux/rtnetlink/scope.ts";
import type {
  GuestDns,
  GuestRoute,
  ObservedGuest,
  ObservedInterface,
} from "../../protocol/configure.ts";
import { routeAttributes } from "../../protocol/attributes.ts";
import { parseResolver, renderResolver } from "../../protocol/resolver.ts";
import { readText } from "../files.ts";
import { hostname, residentKib } from "../machine.ts";
import type { Netlink } from "./netlink.ts";
import { sys } from "../sys.ts";

const isName = (name: string): boolean => {
  try {
    return parseIfName(name) === name;
  } catch {
    return false;
  }
};

/** Scope of addresses of the whole network: not of the link alone (fe80::), not of this machine. */
export const isGlobal = (scope: Scope): boolean => scope !== "link" && scope !== "host";

/** Metric of a route without a requested one. */
export const defaultMetric = (destination: Cidr): number =>
  familyOf(destination) === 4 ? 0 : 1024;

/**
 * Unicast routes that lead out of a link, without the routes that every IPv6 link has (fe80::,
 * ff00::).
 */
export function guestRoutes(
  routes: readonly Route[],
  links: readonly LinkState[],
  withAttributes = false,
): GuestRoute[] {
  const found: GuestRoute[] = [];
  for (const { destination, gateway, link, metric, type, ...more } of routes) {
    const name = links.find(({ index, loopback }) => index === link && !loopback)?.name;
    if (name === undefined || !isName(name) || type !== "unicast") continue;
    if (/^(?:fe80|ff00):/.test(destination)) continue;
    if (gateway !== undefined && familyOf(gateway) !== familyOf(destination)) continue;
    found.push({
      destination,
      ...(gateway === undefined ? {} : { gateway }),
      interface: name,
      ...(metric === defaultMetric(destination) ? {} : { metric }),
      ...(withAttributes ? routeAttributes(more) : {}),
    });
  }
  return found;
}

function observedInterface(
  link: LinkState,
  addresses: readonly LinkAddress[],
  withAttributes: boolean,
): ObservedInterface[] {
  if (link.loopback || link.mac === undefined || !isName(link.name)) return [];
  return [
    {
      name: link.name,
      mac: link.mac,
      index: link.index,
      mtu: link.mtu,
      up: link.up,
      ...(withAttributes && link.noArp === true ? { noArp: true } : {}),
      addresses: addresses
        .filter((address) => address.index === link.index)
        .map(({ prefix }) => parseIpPrefix(prefix)),
    },
  ];
}

/** Addresses of `lo`, without those that make it one. */
export const loopbackAddresses = (netlink: Netlink, index: number): IpPrefix[] =>
  netlink
    .addresses(index)
    .map(({ prefix }) => parseIpPrefix(prefix))
    .filter((prefix) => !isLoopback(ipOf(prefix)) && !prefix.startsWith("fe80:"));

/** Reported only where the host asked for it: an earlier host refuses unknown keys. */
interface AlsoReported {
  readonly loopback?: boolean;
  readonly attributes?: boolean;
  /** What resolv.conf should hold: parsing it is the slowest way to see that it does. */
  readonly dns?: GuestDns;
}

function observedResolver(expected: GuestDns | undefined): GuestDns {
  const text = readText("/etc/resolv.conf") ?? "";
  const asExpected = expected !== undefined && text === renderResolver(expected);
  return asExpected ? expected : parseResolver(text);
}

/** The current state of the guest according to its kernel; its links have just been queried. */
export function observe(
  netlink: Netlink,
  requestId: string,
  links: readonly LinkState[],
  reported: AlsoReported = {},
): ObservedGuest {
  const addresses = netlink.addresses(undefined, isGlobal);
  const { attributes = false } = reported;
  const lo = reported.loopback === true ? links.find(({ loopback }) => loopback) : undefined;
  return {
    requestId,
    hostname: hostname(),
    dns: observedResolver(reported.dns),
    interfaces: links.flatMap((link) => observedInterface(link, addresses, attributes)),
    ...(lo === undefined ? {} : { loopback: loopbackAddresses(netlink, lo.index) }),
    routes: guestRoutes(netlink.routes(), links, attributes),
    clockMs: Math.floor(sys.clock()),
    agentRssKib: residentKib(),
  };
}
