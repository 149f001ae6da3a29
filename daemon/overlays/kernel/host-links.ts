import {
  type Family,
  familyOf,
  type Ip,
  ipOf,
  ipToBytes,
  isLoopback,
} from "../../../core/address.ts";
import type { Rtnetlink } from "../../../linux/netlink/rtnetlink-socket.ts";
import type { LinkAddress } from "../../../linux/rtnetlink/address.ts";
import type { Link } from "../../../linux/rtnetlink/links/link.ts";
import type { Route } from "../../../linux/rtnetlink/route.ts";
import { parseOwner } from "../../../network/model/ownership.ts";
import { type HostLink, type HostLinks, isDefault } from "./choose-uplink.ts";

/** The functions of rtnetlink that are used. */
export type UplinkNetlink = Pick<Rtnetlink, "links" | "addresses" | "routes" | "routesTo">;

const tableMain = 254;

/**
 * The host's links, as input for `chooseUplink`. podnet's own links, loopback and ports of bridges
 * are left out, because they lead to no other host. Throws `NETLINK_FAILED`.
 */
export async function observeHostLinks(
  netlink: UplinkNetlink,
  canReach: Ip | undefined,
): Promise<HostLinks> {
  const links = await netlink.links();
  const addresses = await netlink.addresses();
  const routes = await netlink.routes({ table: tableMain });
  const [reach] = canReach === undefined ? [] : await netlink.routesTo([canReach]);
  const reachLink = reach === undefined ? undefined : linkOf(reach);
  return {
    links: links.filter(isCandidate).map((link) => hostLink(link, addresses)),
    ...(reachLink === undefined
      ? {}
      : {
          reach: {
            link: reachLink,
            ...(reach?.source === undefined ? {} : { source: reach.source }),
          },
        }),
    defaults: { ...defaultOf(routes, 4), ...defaultOf(routes, 6) },
  };
}

/** (Without a name that `IfName` takes, rules could not be written for it.) */
const isCandidate = ({ loopback, master, alias, name }: Link): boolean =>
  !loopback && master === undefined && parseOwner(alias) === undefined && /^[\w.@+=-]+$/.test(name);

const hostLink = ({ index, name, mtu }: Link, addresses: readonly LinkAddress[]): HostLink => ({
  index,
  name,
  mtu,
  addresses: addresses
    .filter((address) => address.index === index && isUsable(address))
    .toSorted((a, b) => rank(a) - rank(b))
    .map(({ prefix }) => ipOf(prefix)),
});

/**
 * Whether other hosts can send to the address: it is not deprecated, tentative or a duplicate, and
 * its scope is wide enough. A link-local IPv6 address is not.
 */
const isUsable = ({ prefix, tentative, dadFailed, deprecated }: LinkAddress): boolean => {
  const ip = ipOf(prefix);
  const own = isLoopback(ip) || (familyOf(ip) === 6 && isLinkLocal(ip));
  return !own && !tentative && !dadFailed && !deprecated;
};

/**
 * Orders global before link-local addresses, and permanent before expiring ones; otherwise the
 * kernel's order, which starts with the primary address.
 */
const rank = ({ prefix, permanent, scope }: LinkAddress): number =>
  (isLinkLocal(ipOf(prefix)) || scope !== "global" ? 2 : 0) + (permanent ? 0 : 1);

function isLinkLocal(ip: Ip): boolean {
  const [first = 0, second = 0] = ipToBytes(ip);
  return familyOf(ip) === 4 ? first === 169 && second === 254 : first === 0xfe && second >> 6 === 2;
}

/** The preferred default route of those that are usable. */
function defaultOf(routes: readonly Route[], family: Family): Partial<Record<Family, number>> {
  const [best] = routes
    .filter(
      (route) =>
        route.family === family &&
        route.type === "unicast" &&
        !route.dead &&
        isDefault(route.destination) &&
        linkOf(route) !== undefined,
    )
    .toSorted((a, b) => a.metric - b.metric);
  const link = best === undefined ? undefined : linkOf(best);
  return link === undefined ? {} : { [family]: link };
}

const linkOf = (route: Route): number | undefined => route.link ?? route.nextHops?.[0]?.link;
