import { type Cidr, type IpPrefix, lengthOf, networkOf, overlaps } from "../../core/address.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import type { NetworkFragment } from "../model/desired.ts";
import type { HostNetlink } from "../kernel/kernel.ts";

/** Something the host has that shares addresses with a network. */
export interface Overlap {
  /** The network's. */
  readonly subnet: Cidr;
  /** For people: `address 10.0.0.5/24 of eth0`, `route 10.0.0.0/8 by eth1`. */
  readonly with: string;
}

/** Routes to this very machine, which addresses report (RT_TABLE_LOCAL). */
const localTable = 255;

/** The network's own objects, which are not an overlap. */
export interface OwnParts {
  readonly link: (link: Link) => boolean;
  readonly route?: (route: Route) => boolean;
}

/** The host's objects that overlap subnets of which podnet has no link. */
export const observeOverlapsOf = (
  netlink: Pick<HostNetlink, "links" | "addresses" | "routes">,
  subnets: readonly Cidr[],
): Promise<Overlap[]> => overlapsOf(netlink, subnets, { link: () => false });

/** The host's objects that overlap a network, except its own bridge. */
export const observeOverlaps = (
  netlink: Pick<HostNetlink, "links" | "addresses" | "routes">,
  { bridge, gateways }: Pick<NetworkFragment, "bridge" | "gateways">,
): Promise<Overlap[]> =>
  overlapsOf(netlink, gateways.map(networkOf), { link: ({ name }) => name === bridge });

/**
 * The host's objects that overlap these subnets: addresses of other links, and routes of every
 * table except default routes. Their destinations could not be reached any more. Throws
 * `NETLINK_FAILED`.
 */
export async function overlapsOf(
  netlink: Pick<HostNetlink, "links" | "addresses" | "routes">,
  subnets: readonly Cidr[],
  own: OwnParts,
): Promise<Overlap[]> {
  const links = await netlink.links();
  const name = (index: number | undefined): string =>
    links.find((link) => link.index === index)?.name ?? `link ${index}`;
  const ownLinks = new Set(links.filter(own.link).map(({ index }) => index));
  const found: Overlap[] = [];
  const compare = (theirs: Cidr, what: string): void => {
    for (const subnet of subnets) if (overlaps(subnet, theirs)) found.push({ subnet, with: what });
  };
  const held = (await netlink.addresses()).filter(({ index }) => !ownLinks.has(index));
  for (const { index, prefix } of held)
    compare(networkOf(prefix), `address ${prefix} of "${name(index)}"`);
  const routes = (await netlink.routes()).filter(
    (route) => counts(route, ownLinks, held) && own.route?.(route) !== true,
  );
  for (const { destination, link, type } of routes) {
    const way = link === undefined ? `${type}` : `by "${name(link)}"`;
    compare(destination, `route ${destination} ${way}`);
  }
  return found;
}

/** Excludes the routes that come with an address, because addresses are compared themselves. */
const counts = (
  { destination, table, link, protocol }: Route,
  own: ReadonlySet<number>,
  held: readonly { readonly index: number; readonly prefix: IpPrefix }[],
): boolean =>
  table !== localTable &&
  lengthOf(destination) > 0 &&
  !(link !== undefined && own.has(link)) &&
  !(
    protocol === kernelProtocol &&
    held.some(({ index, prefix }) => index === link && networkOf(prefix) === destination)
  );

/** RTPROT_KERNEL. */
const kernelProtocol = 2;
