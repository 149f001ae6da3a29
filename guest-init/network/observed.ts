import { type Cidr, familyOf, parseIpPrefix } from "../../core/address.ts";
import { parseIfName } from "../../core/names.ts";
import type { LinkAddress } from "../../linux/rtnetlink/address.ts";
import type { LinkState } from "../../linux/rtnetlink/links/link.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import type { Scope } from "../../linux/rtnetlink/scope.ts";
import { routeAttributes } from "../protocol/attributes.ts";
import type { GuestRoute, ObservedInterface } from "../protocol/configure.ts";

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

export function observedInterface(
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
