import { type IpPrefix, ipOf } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { deleteAddress } from "../../linux/rtnetlink/address.ts";
import { changeLink } from "../../linux/rtnetlink/links/link-requests.ts";
import type { LinkState } from "../../linux/rtnetlink/links/link.ts";
import { replaceNeighbour } from "../../linux/rtnetlink/neighbour.ts";
import { deleteRoute } from "../../linux/rtnetlink/route-requests.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import { hexBytes } from "../protocol/bytes.ts";
import { asksAttributes, hasAttributes } from "../protocol/attributes.ts";
import type { GuestConfig, GuestInterface, GuestRoute } from "../protocol/configure.ts";
import { encodeObservedGuest, parseGuestConfig } from "../protocol/extension-messages.ts";
import {
  type Change,
  linkChanges,
  macChange,
  nameChange,
  routeChange,
  routeProtocol,
  usesIpv6,
} from "../network/changes.ts";
import { defaultMetric, isGlobal } from "../network/observed.ts";
import { announce } from "./network/announce.ts";
import { restrictIpv6 } from "./network/ipv6.ts";
import type { Links } from "./network/links.ts";
import { keepLoopback, setLoopback } from "./network/loopback.ts";
import { addRandomness, setHostname } from "./machine.ts";
import type { Netlink } from "./network/netlink.ts";
import { observe } from "./network/observe.ts";
import { renameLink } from "./network/rename.ts";
import type { Reply } from "./reply.ts";
import { setResolver } from "./network/resolver-file.ts";
import { sys } from "./sys.ts";

/** Longest wait for a NIC's carrier before it is announced anyway, milliseconds. */
const carrierMs = 500;

/** A link the configuration names, found. */
interface Found {
  readonly wanted: GuestInterface;
  readonly link: LinkState;
}

/**
 * CONFIGURE: the guest's whole network at once, again and again with the same end. Answers what is
 * there afterwards. The host waits for it while a pod starts, and the guest's engine is slow: what
 * changes goes to the kernel in one call.
 */
export async function configure(
  payload: Uint8Array,
  links: Links,
  /** Called once there is fresh randomness. */
  seeded: () => void = () => undefined,
): Promise<Reply> {
  const config = parseGuestConfig(payload);
  if (config.clockMs !== undefined) sys.setClock(config.clockMs);
  if (config.entropy !== undefined) addRandomness(hexBytes(config.entropy));
  seeded();
  if (config.hostname !== undefined) setHostname(config.hostname);
  const resolverKept = config.dns === undefined ? undefined : setResolver(config.dns);
  const { netlink } = links;
  const all = await links.when(
    (there) => config.interfaces.every((wanted) => linkOf(wanted, there) !== undefined),
    config.waitMs,
  );

  const found = giveNames(pair(config, all), all, netlink);
  const indexes = new Map(all.map(({ name, index }) => [name, index]));
  for (const { wanted, link } of found) indexes.set(wanted.name, link.index);
  // Names of links that the host does not name may have changed, too.
  const [los, others] = [all.filter(isLoopback), all.filter((link) => !isLoopback(link))];
  const after = netlink.applyTo(
    others.map(({ index }) => index),
    [
      ...setLoopback(config, all, netlink),
      ...found.flatMap((one) => setUp(one, netlink)),
      ...setRoutes(config, found, indexes, netlink),
      ...setNeighbours(config, indexes),
    ],
  );
  keepLoopback(links, config);
  const now = await announceAll(found, [...los, ...after], links);
  const observed = observe(netlink, config.requestId, now, {
    loopback: config.loopback !== undefined,
    attributes: asksAttributes(config),
    ...(config.dns === undefined ? {} : { dns: config.dns }),
  });
  return {
    payload: encodeObservedGuest({
      ...observed,
      ...(resolverKept === undefined ? {} : { resolverKept }),
    }),
  };
}

const isLoopback = ({ loopback }: LinkState): boolean => loopback;

/** The interface's link: by its own MAC, else by that with which it was plugged. */
const linkOf = (
  { mac, pluggedAs }: GuestInterface,
  all: readonly LinkState[],
): LinkState | undefined =>
  all.find((link) => link.mac === mac) ?? all.find((link) => link.mac === pluggedAs);

function pair(config: GuestConfig, all: readonly LinkState[]): Found[] {
  return config.interfaces.map((wanted, i) => {
    const link = linkOf(wanted, all);
    if (link !== undefined) return { wanted, link };
    throw new PodnetError(
      "DEADLINE_EXCEEDED",
      `No interface with MAC ${wanted.mac} came within ${config.waitMs} ms`,
      { field: `interfaces[${i}].mac` },
    );
  });
}

/**
 * Gives links their names. Names may have to be swapped, or be held by a link that the host does
 * not name: a link that is in the way gets a temporary name. A link that is down gets its name as
 * it is set up. Answers the links with their current names.
 */
function giveNames(found: readonly Found[], all: readonly LinkState[], netlink: Netlink): Found[] {
  const inTheWay = all.filter((holder) =>
    found.some(({ wanted, link }) => wanted.name === holder.name && link !== holder),
  );
  for (const holder of inTheWay) renameLink(netlink, holder, `was${holder.index}`);
  return found.map(({ wanted, link }) => {
    const name = inTheWay.includes(link) ? `was${link.index}` : link.name;
    if (!link.up) return { wanted, link: { ...link, name } };
    renameLink(netlink, { ...link, name }, wanted.name);
    return { wanted, link: { ...link, name: wanted.name } };
  });
}

function setUp({ wanted, link }: Found, netlink: Netlink): Change[] {
  if (wanted.parked === true) return park({ wanted, link }, netlink);
  restrictIpv6(link.name, usesIpv6(wanted));
  const there = new Set(currentAddresses(wanted, link, netlink));
  return linkChanges(
    wanted,
    link,
    wanted.addresses.filter((prefix) => !there.has(prefix)),
  );
}

/**
 * Takes the link down, which removes its routes and IPv6 addresses, and removes the others. It
 * speaks no IPv6 when it comes up, unless that is asked for then.
 */
function park({ wanted, link }: Found, netlink: Netlink): Change[] {
  restrictIpv6(link.name, false);
  currentAddresses({ ...wanted, addresses: [] }, link, netlink);
  const identity = { ...nameChange(wanted, link), ...macChange(wanted, link) };
  return [
    { request: changeLink(link.index, { up: false }) },
    ...(Object.keys(identity).length === 0 ? [] : [{ request: changeLink(link.index, identity) }]),
  ];
}

/**
 * Addresses of the link, after those are gone that a router's advertisement or an earlier
 * configuration left.
 */
function currentAddresses(
  wanted: GuestInterface,
  { index }: LinkState,
  netlink: Netlink,
): IpPrefix[] {
  const current = (): IpPrefix[] => netlink.addresses(index, isGlobal).map(({ prefix }) => prefix);
  const there = current();
  const named = new Set(wanted.addresses);
  const unwanted = there.filter((prefix) => !named.has(prefix));
  if (unwanted.length === 0) return there;
  netlink.apply(
    unwanted.map((prefix) => ({ request: deleteAddress(index, prefix), fine: ["EADDRNOTAVAIL"] })),
  );
  // With the first address of a subnet its others go too (promote_secondaries is 0).
  return current();
}

function setRoutes(
  config: GuestConfig,
  found: readonly Found[],
  indexes: ReadonlyMap<string, number>,
  netlink: Netlink,
): Change[] {
  const wanted = config.routes.map((route, i) => ({
    route,
    link: indexOf(indexes, route.interface, `routes[${i}].interface`),
  }));
  // By destination: to compare each route with each would take the guest's engine seconds, with
  // hundreds of them.
  const wantedTo = Map.groupBy(wanted, ({ route }) => route.destination);
  const isWanted = (there: Route): boolean =>
    (wantedTo.get(there.destination) ?? []).some(
      ({ route, link }) => there.link === link && sameRoute(there, route),
    );
  // A link that is down has no routes, and one that is there already may be made once more.
  const routes = found.some(({ link }) => link.up) ? netlink.routes() : [];
  const routesTo = Map.groupBy(routes, ({ destination }) => destination);
  const changes: Change[] = [];
  for (const there of routes) {
    const ours =
      there.protocol === routeProtocol && found.some(({ link }) => link.index === there.link);
    if (ours && !isWanted(there))
      changes.push({ request: deleteRoute(exactly(there)), fine: ["ESRCH"] });
  }
  // Routes without a gateway lead to the gateways of the others.
  const direct = wanted.filter(({ route }) => route.gateway === undefined);
  const through = wanted.filter(({ route }) => route.gateway !== undefined);
  for (const { route, link } of [...direct, ...through]) {
    const isThere = (routesTo.get(route.destination) ?? []).some(
      (there) => there.link === link && sameRoute(there, route),
    );
    if (!isThere) changes.push(routeChange(route, link));
  }
  return changes;
}

function indexOf(indexes: ReadonlyMap<string, number>, name: string, field: string): number {
  const index = indexes.get(name);
  if (index !== undefined) return index;
  throw new PodnetError("INVALID_ARGUMENT", `There is no interface "${name}"`, { field });
}

const exactly = ({ destination, gateway, link, metric, protocol }: Route) => ({
  destination,
  protocol,
  metric,
  ...(gateway === undefined ? {} : { gateway }),
  ...(link === undefined ? {} : { link }),
});

const sameRoute = (there: Route, wanted: GuestRoute): boolean =>
  there.destination === wanted.destination &&
  there.gateway === wanted.gateway &&
  hasAttributes(there, wanted) &&
  there.metric === (wanted.metric ?? defaultMetric(wanted.destination));

const setNeighbours = (config: GuestConfig, indexes: ReadonlyMap<string, number>): Change[] =>
  config.neighbours.map(({ interface: name, address, mac }, i) => {
    const index = indexOf(indexes, name, `neighbours[${i}].interface`);
    return { request: replaceNeighbour({ index, address, mac }) };
  });

/**
 * Announces the links to their neighbours as soon as they have a carrier: a link that was just set
 * up drops frames. Answers all links in their state after that.
 */
async function announceAll(
  found: readonly Found[],
  after: readonly LinkState[],
  links: Links,
): Promise<readonly LinkState[]> {
  const announced = found.filter(({ wanted }) => wanted.parked !== true);
  let now = after;
  // Carrier, not "running": a work item that runs once a second updates the latter (linkwatch,
  // Linux 6.1).
  const connected = ({ link }: Found): boolean =>
    now.some(({ index, carrier }) => index === link.index && carrier);
  const allConnected = (): true | undefined => {
    if (announced.every(connected)) return true;
    now = links.netlink.links();
    return announced.every(connected) ? true : undefined;
  };
  await links.until(allConnected, carrierMs);
  for (const { wanted, link } of announced.filter(connected))
    announce(link.index, wanted.mac, wanted.addresses.map(ipOf));
  return now;
}
