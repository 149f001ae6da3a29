import { type IpPrefix, familyOf, ipOf } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { addAddress, deleteAddress } from "../../linux/rtnetlink/address.ts";
import type { Link } from "../../linux/rtnetlink/link.ts";
import { replaceNeighbour } from "../../linux/rtnetlink/neighbour.ts";
import { deleteRoute, replaceRoute } from "../../linux/rtnetlink/route-requests.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import type { GuestConfig, GuestInterface, GuestRoute } from "../protocol/configure.ts";
import { encodeObservedGuest, parseGuestConfig } from "../protocol/extension-messages.ts";
import { announce } from "./announce.ts";
import { hearMulticast, ignoreAdvertisements } from "./ipv6.ts";
import type { Links } from "./links.ts";
import { addRandomness, setHostname, setResolver } from "./machine.ts";
import { isGlobal, observe } from "./observe.ts";
import { renameLink } from "./rename.ts";
import type { Reply } from "./reply.ts";
import { sys } from "./sys.ts";

/** Marks routes as podnet's, in the guest as on the host. */
const routeProtocol = 73;
/** How long a NIC has until it can carry frames, before it is announced all the same, milliseconds. */
const carrierMs = 500;

/** A link the configuration names, found. */
interface Found {
  readonly wanted: GuestInterface;
  readonly link: Link;
}

/** CONFIGURE: the guest's whole network at once, again and again with the same end. Answers what is there afterwards. */
export async function configure(payload: Uint8Array, links: Links): Promise<Reply> {
  const config = parseGuestConfig(payload);
  if (config.clockMs !== undefined) sys.setClock(config.clockMs);
  if (config.entropy !== undefined) addRandomness(config.entropy);
  if (config.hostname !== undefined) setHostname(config.hostname);
  if (config.dns !== undefined) setResolver(config.dns);
  const { netlink } = links;
  netlink.change("lo", { up: true });

  const found = await findAll(config, links);
  giveNames(found, links);
  for (const { wanted, link } of found) setUp(wanted, link, links);
  setRoutes(config, found, links);
  setNeighbours(config, links);
  await announceAll(found, links);
  return { payload: encodeObservedGuest(observe(netlink, config.requestId)) };
}

/** All interfaces by their MAC, waited for together. */
async function findAll(config: GuestConfig, links: Links): Promise<Found[]> {
  const all = config.interfaces.map((wanted) => links.withMac(wanted.mac, config.waitMs));
  return (await Promise.all(all)).map((link, i) => {
    const wanted = config.interfaces[i] as GuestInterface;
    if (link !== undefined) return { wanted, link };
    throw new PodnetError(
      "DEADLINE_EXCEEDED",
      `No interface with MAC ${wanted.mac} came within ${config.waitMs} ms`,
      { field: `interfaces[${i}].mac` },
    );
  });
}

/** Names may have to be swapped, or be held by a link that is not named: who is in the way gets one of its own. */
function giveNames(found: readonly Found[], { netlink }: Links): void {
  for (const { wanted, link } of found) {
    const holder = netlink.link(wanted.name);
    if (holder?.index === link.index) continue;
    if (holder !== undefined) renameLink(netlink, holder, `was${holder.index}`);
    renameLink(netlink, netlink.link(link.index) ?? link, wanted.name);
  }
}

function setUp(wanted: GuestInterface, link: Link, { netlink }: Links): void {
  // Exactly the given addresses: none made of what a router advertises.
  ignoreAdvertisements(wanted.name);
  if (wanted.mtu !== undefined && wanted.mtu !== link.mtu)
    netlink.change(link.index, { mtu: wanted.mtu });
  // A router's advertisement or an earlier configuration may have left some.
  const current = (): IpPrefix[] =>
    netlink
      .addresses(link.index)
      .filter(isGlobal)
      .map(({ prefix }) => prefix);
  let there = current();
  const unwanted = there.filter((prefix) => !wanted.addresses.includes(prefix));
  for (const prefix of unwanted)
    netlink.tolerate(deleteAddress(link.index, prefix), "EADDRNOTAVAIL");
  // With the first address of a subnet its others go too (promote_secondaries is 0).
  if (unwanted.length > 0) there = current();
  for (const prefix of wanted.addresses)
    if (!there.includes(prefix))
      netlink.tolerate(addAddress(link.index, prefix, { noDad: true }), "EEXIST");
  netlink.change(link.index, { up: true });
  if (wanted.addresses.some((prefix) => familyOf(prefix) === 6)) hearMulticast(netlink, link.index);
}

function setRoutes(config: GuestConfig, found: readonly Found[], { netlink }: Links): void {
  const indexes = new Map(found.map(({ wanted, link }) => [wanted.name, link.index]));
  const linkOf = (name: string, field: string): number => {
    const index = indexes.get(name) ?? netlink.link(name)?.index;
    if (index !== undefined) return index;
    throw new PodnetError("INVALID_ARGUMENT", `There is no interface "${name}"`, { field });
  };
  const wanted = config.routes.map((route, i) => ({
    route,
    link: linkOf(route.interface, `routes[${i}].interface`),
  }));
  const isWanted = (there: Route): boolean =>
    wanted.some(({ route, link }) => there.link === link && sameRoute(there, route));
  const routes = netlink.routes();
  for (const there of routes) {
    const ours =
      there.protocol === routeProtocol && [...indexes.values()].includes(there.link ?? 0);
    if (ours && !isWanted(there)) netlink.tolerate(deleteRoute(exactly(there)), "ESRCH");
  }
  // Routes without a gateway lead to the gateways of the others.
  const direct = wanted.filter(({ route }) => route.gateway === undefined);
  const through = wanted.filter(({ route }) => route.gateway !== undefined);
  for (const { route, link } of [...direct, ...through]) {
    const isThere = routes.some((there) => there.link === link && sameRoute(there, route));
    if (!isThere) netlink.request(replaceRoute(newRoute(route, link)));
  }
}

const newRoute = ({ destination, gateway, metric }: GuestRoute, link: number) => ({
  destination,
  link,
  protocol: routeProtocol,
  ...(gateway === undefined ? {} : { gateway }),
  ...(metric === undefined ? {} : { metric }),
});

const exactly = ({ destination, gateway, link, metric, protocol }: Route) => ({
  destination,
  protocol,
  metric,
  ...(gateway === undefined ? {} : { gateway }),
  ...(link === undefined ? {} : { link }),
});

/** Without a metric any will do: IPv4 gives 0, IPv6 1024. */
const sameRoute = (there: Route, wanted: GuestRoute): boolean =>
  there.destination === wanted.destination &&
  there.gateway === wanted.gateway &&
  (wanted.metric === undefined || there.metric === wanted.metric);

function setNeighbours(config: GuestConfig, { netlink }: Links): void {
  config.neighbours.forEach(({ interface: name, address, mac }, i) => {
    const link = netlink.link(name);
    if (link === undefined)
      throw new PodnetError("INVALID_ARGUMENT", `There is no interface "${name}"`, {
        field: `neighbours[${i}].interface`,
      });
    netlink.request(replaceNeighbour({ index: link.index, address, mac }));
  });
}

/** A link that was set up a moment ago drops frames until its carrier is seen. */
async function announceAll(found: readonly Found[], links: Links): Promise<void> {
  for (const { wanted, link } of found) {
    // Carrier, not "running": the latter is settled by a work item that runs once a second (linkwatch, Linux 6.1).
    const connected = (): Link | undefined => {
      const now = links.netlink.link(link.index);
      return now?.carrier === true ? now : undefined;
    };
    const ready = await links.until(connected, carrierMs);
    if (ready !== undefined) announce(link.index, wanted.mac, wanted.addresses.map(ipOf));
  }
}
