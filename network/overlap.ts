import { type Cidr, type IpPrefix, lengthOf, networkOf, overlaps } from "../core/address.ts";
import type { Route } from "../linux/rtnetlink/route.ts";
import type { NetworkFragment } from "./desired.ts";
import type { HostNetlink } from "./kernel.ts";

/** Something the host has that shares addresses with a network. */
export interface Overlap {
  /** The network's. */
  readonly subnet: Cidr;
  /** For people: `address 10.0.0.5/24 of eth0`, `route 10.0.0.0/8 by eth1`. */
  readonly with: string;
}

/** Routes to this very machine, which addresses tell of (RT_TABLE_LOCAL). */
const localTable = 255;

/**
 * What of the host shares addresses with a network, its own bridge aside: addresses of other links, and routes of every
 * table that are no default routes. What lies behind those could not be reached any more.
 */
export async function observeOverlaps(
  netlink: Pick<HostNetlink, "links" | "addresses" | "routes">,
  { bridge, gateways }: Pick<NetworkFragment, "bridge" | "gateways">,
): Promise<Overlap[]> {
  const links = await netlink.links();
  const name = (index: number | undefined): string =>
    links.find((link) => link.index === index)?.name ?? `link ${index}`;
  const own = links.find((link) => link.name === bridge)?.index ?? -1;
  const subnets = gateways.map(networkOf);
  const found: Overlap[] = [];
  const compare = (theirs: Cidr, what: string): void => {
    for (const subnet of subnets) if (overlaps(subnet, theirs)) found.push({ subnet, with: what });
  };
  const held = (await netlink.addresses()).filter(({ index }) => index !== own);
  for (const { index, prefix } of held)
    compare(networkOf(prefix), `address ${prefix} of "${name(index)}"`);
  const routes = (await netlink.routes()).filter((route) => counts(route, own, held));
  for (const { destination, link, type } of routes) {
    const way = link === undefined ? `${type}` : `by "${name(link)}"`;
    compare(destination, `route ${destination} ${way}`);
  }
  return found;
}

/** Not the ones that come with an address, which was looked at. */
const counts = (
  { destination, table, link, protocol }: Route,
  own: number,
  held: readonly { readonly index: number; readonly prefix: IpPrefix }[],
): boolean =>
  table !== localTable &&
  lengthOf(destination) > 0 &&
  link !== own &&
  !(
    protocol === kernelProtocol &&
    held.some(({ index, prefix }) => index === link && networkOf(prefix) === destination)
  );

/** RTPROT_KERNEL. */
const kernelProtocol = 2;
