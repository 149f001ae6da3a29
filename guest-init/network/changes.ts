import { familyOf, parseCidr } from "../../core/address.ts";
import { addAddress } from "../../linux/rtnetlink/address.ts";
import type { IpPrefix } from "../../core/address.ts";
import { type LinkChange, changeLink } from "../../linux/rtnetlink/links/link-requests.ts";
import type { LinkState } from "../../linux/rtnetlink/links/link.ts";
import type { Request } from "../../linux/rtnetlink/message.ts";
import { type NewRoute, addRoute, replaceRoute } from "../../linux/rtnetlink/route-requests.ts";
import { routeAttributes } from "../protocol/attributes.ts";
import type { GuestInterface, GuestRoute } from "../protocol/configure.ts";

/** A request that changes something, and the error names that are as good as success. */
export interface Change {
  readonly request: Request;
  readonly fine?: readonly string[];
}

/** Marks routes as podnet's, in the guest as on the host. */
export const routeProtocol = 73;

export const nameChange = ({ name }: GuestInterface, link: LinkState): Pick<LinkChange, "name"> =>
  link.name === name ? {} : { name };

export const macChange = ({ mac }: GuestInterface, link: LinkState): Pick<LinkChange, "mac"> =>
  link.mac === mac ? {} : { mac };

/** MAC, name, MTU, flags and state in one request, in the kernel's own order. */
function linkChange(wanted: GuestInterface, link: LinkState): LinkChange | undefined {
  const { mtu = link.mtu } = wanted;
  const noArp = wanted.noArp === true && link.noArp !== true;
  const mac = macChange(wanted, link);
  if (link.up && link.mtu === mtu && !noArp && mac.mac === undefined) return undefined;
  return {
    ...mac,
    ...nameChange(wanted, link),
    ...(link.mtu === mtu ? {} : { mtu }),
    ...(noArp ? { noArp } : {}),
    up: true,
  };
}

/**
 * What makes a link as it is to be: the link itself, the addresses that it lacks, and a way for
 * multicast where it has addresses of IPv6.
 */
export function linkChanges(
  wanted: GuestInterface,
  link: LinkState,
  missing: readonly IpPrefix[],
): Change[] {
  const change = linkChange(wanted, link);
  return [
    ...(change === undefined ? [] : [{ request: changeLink(link.index, change) }]),
    ...missing.map((prefix) => ({
      request: addAddress(link.index, prefix, { noDad: true }),
      fine: ["EEXIST"],
    })),
    ...(usesIpv6(wanted) ? [hearMulticast(link.index)] : []),
  ];
}

export const usesIpv6 = ({ addresses }: Pick<GuestInterface, "addresses">): boolean =>
  addresses.some((prefix) => familyOf(prefix) === 6);

/** Makes a route by a link, whatever leads to its destination now. */
export const routeChange = (route: GuestRoute, link: number): Change => ({
  request: replaceRoute(newRoute(route, link)),
});

const newRoute = (
  { destination, gateway, metric, ...more }: GuestRoute,
  link: number,
): NewRoute => ({
  destination,
  link,
  protocol: routeProtocol,
  ...(gateway === undefined ? {} : { gateway }),
  ...(metric === undefined ? {} : { metric }),
  ...routeAttributes(more),
});

/** Routes without a gateway lead to the gateways of the others. */
export const directFirst = (routes: readonly GuestRoute[]): GuestRoute[] => [
  ...routes.filter(({ gateway }) => gateway === undefined),
  ...routes.filter(({ gateway }) => gateway !== undefined),
];

const allMulticast = parseCidr("ff00::/8");

/**
 * Lets a link that is up hear multicast at once, which neighbour discovery needs. The kernel makes
 * this route only when the link's operational state is up, which for a NIC plugged a moment ago
 * takes up to a second: state changes are looked at once a second (linkwatch, Linux 6.1). When it
 * comes to it, the kernel finds its own route there.
 */
export const hearMulticast = (index: number): Change => ({
  request: addRoute({
    destination: allMulticast,
    link: index,
    type: "multicast",
    // RT_TABLE_LOCAL, RTPROT_KERNEL, IP6_RT_PRIO_ADDRCONF: as addrconf_add_mroute has them.
    table: 255,
    protocol: 2,
    metric: 256,
  }),
  fine: ["EEXIST"],
});
