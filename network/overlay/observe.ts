import {
  type Cidr,
  contains,
  type Family,
  type Ip,
  ipFromBigInt,
  ipOf,
  lengthOf,
  type Mac,
  networkOf,
  rangeOf,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import type { FdbEntry } from "../../linux/rtnetlink/fdb.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import type { Neighbour } from "../../linux/rtnetlink/neighbour.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import { mark } from "../model/desired.ts";
import { overlayMark } from "../model/ownership.ts";
import type { RouteTo } from "./change.ts";
import { type OverlaySide, sideFamily } from "../model/overlay.ts";
import type { OverlayNetlink } from "./kernel.ts";
import type { UdpTunnel } from "./udp/tunnel.ts";
import { type ObservedSide, ownMetric, type StrayRoute } from "./plan.ts";
import type { ObservedDevice } from "./observed-device.ts";

const tableMain = 254;
/** The protocol number of routes made without a protocol: those of `ip route`, and flannel's. */
const protocolBoot = 3;

/** The link by which a host reaches the others. Throws `NETLINK_FAILED` when it is not there. */
export async function observeParent(netlink: OverlayNetlink, name: IfName): Promise<Link> {
  const link = await netlink.link(name);
  if (link !== undefined) return link;
  throw new PodnetError(
    "NETLINK_FAILED",
    `Link "${name}", which the overlay uses, does not exist`,
    {
      hint: "Bring it back, or configure another",
      details: { link: name, errno: "ENODEV" },
    },
  );
}

/** The addresses that are on a link of this host, according to the kernel, as flannel does it. */
export async function observeDirect(
  netlink: OverlayNetlink,
  addresses: readonly Ip[],
): Promise<ReadonlySet<Ip>> {
  const routes = await netlink.routesTo(addresses);
  const direct = addresses.filter((_address, i) => {
    const route = routes[i];
    return route?.type === "unicast" && route.gateway === undefined && route.nextHops === undefined;
  });
  return new Set(direct);
}

/**
 * The broadcast addresses of a link's IPv4 networks, which no host can have: the last address of
 * each network of more than two addresses.
 */
export async function observeBroadcasts(
  netlink: Pick<OverlayNetlink, "addresses">,
  { index }: Link,
): Promise<ReadonlySet<Ip>> {
  const addresses = await netlink.addresses({ index });
  return new Set(
    addresses.flatMap(({ prefix }) => {
      const network = networkOf(prefix);
      if (network.includes(":") || lengthOf(network) > 30) return [];
      return [ipFromBigInt(4, rangeOf(network).last)];
    }),
  );
}

/** Observes one address family of an overlay on this host. Throws `NETLINK_FAILED`. */
export async function observeSide(
  netlink: OverlayNetlink,
  side: OverlaySide,
  parent: Link,
  tunnel?: Pick<UdpTunnel, "device" | "peers">,
): Promise<ObservedSide> {
  const family = sideFamily(side);
  const name = side.vtep?.device ?? tunnel?.device;
  const link = name === undefined ? undefined : await netlink.link(name);
  const nameOf = linkNames(netlink, [parent, ...(link === undefined ? [] : [link])]);
  const vxlan = link?.kind === "vxlan" ? link : undefined;
  const device =
    link === undefined ? undefined : await observeDevice(netlink, link, family, nameOf);
  const ours = await netlink.routes({
    family,
    table: tableMain,
    protocol: mark.routeProtocol,
  });
  const others =
    vxlan === undefined
      ? []
      : await netlink.routes({
          family,
          table: tableMain,
          protocol: protocolBoot,
          link: vxlan.index,
        });
  const routes = new Map<Cidr, RouteTo>();
  const strays: StrayRoute[] = [];
  for (const route of ours) {
    const { destination, metric } = route;
    if (!contains(side.network, ipOf(destination)) && route.link !== vxlan?.index) continue;
    const found = await routeTo(route, nameOf);
    if (metric !== ownMetric(destination) || routes.has(destination))
      strays.push({ ...found, metric, protocol: route.protocol });
    else routes.set(destination, found);
  }
  for (const route of others)
    if (isFlannels(route, side.network)) {
      const { metric, protocol } = route;
      strays.push({ ...(await routeTo(route, nameOf)), metric, protocol });
    }
  const [neighbours, fdb] =
    vxlan === undefined
      ? [[], []]
      : [
          await netlink.neighbours({ family, index: vxlan.index }),
          await netlink.fdb({ index: vxlan.index }),
        ];
  return {
    device,
    neighbours: ownNeighbours(neighbours, side.network),
    fdb: ownFdb(fdb, vxlan?.index),
    routes,
    strays,
    ...(tunnel === undefined ? {} : { tunnel: tunnel.peers }),
  };
}

/** Devices that bear an overlay's mark. */
export async function observeMarked(
  netlink: OverlayNetlink,
): Promise<readonly { readonly device: IfName; readonly alias: string }[]> {
  const links = await netlink.links({ kind: "vxlan" });
  return links.flatMap(({ name, alias }) =>
    alias?.startsWith(overlayMark("")) === true ? [{ device: name as IfName, alias }] : [],
  );
}

async function observeDevice(
  netlink: OverlayNetlink,
  link: Link,
  family: Family,
  nameOf: (index: number) => Promise<IfName>,
): Promise<ObservedDevice> {
  const { vxlan } = link;
  const addresses = await netlink.addresses({ index: link.index, family });
  return {
    device: link.name as IfName,
    kind: link.kind,
    alias: link.alias,
    group: link.group,
    mtu: link.mtu,
    up: link.up,
    mac: link.mac,
    vxlan: vxlan && {
      vni: vxlan.id,
      port: vxlan.port ?? 0,
      local: vxlan.local,
      parent: vxlan.link === undefined || vxlan.link === 0 ? undefined : await nameOf(vxlan.link),
      gbp: vxlan.gbp === true,
      learning: vxlan.learning === true,
      remote: vxlan.remote !== undefined,
    },
    addresses: addresses.map(({ prefix }) => prefix),
  };
}

async function routeTo(
  { destination, gateway, link = 0, onlink }: Route,
  nameOf: (index: number) => Promise<IfName>,
): Promise<RouteTo> {
  return {
    destination,
    ...(gateway === undefined ? {} : { gateway }),
    link: await nameOf(link),
    onlink,
  };
}

/** Names of links by index, each asked for once. One that has gone is called by its index. */
function linkNames(
  netlink: OverlayNetlink,
  known: readonly Link[],
): (index: number) => Promise<IfName> {
  const names = new Map(known.map(({ index, name }) => [index, name as IfName]));
  return async (index) => {
    const name =
      names.get(index) ?? (((await netlink.link(index))?.name ?? `link ${index}`) as IfName);
    names.set(index, name);
    return name;
  };
}

/** Whether flannel made a route on its device for a peer; the route has no mark of flannel. */
const isFlannels = ({ destination, gateway, onlink }: Route, network: Cidr): boolean =>
  onlink && gateway === ipOf(destination) && contains(network, gateway);

/**
 * The neighbours with podnet's protocol number, and all permanent ones within the overlay, because
 * flannel sets no number.
 */
function ownNeighbours(found: readonly Neighbour[], network: Cidr): ReadonlyMap<Ip, Mac> {
  const own = new Map<Ip, Mac>();
  for (const { address, mac, state, protocol } of found) {
    if (state !== "permanent" || mac === undefined) continue;
    if (protocol === mark.routeProtocol || contains(network, address)) own.set(address, mac);
  }
  return own;
}

/**
 * The permanent entries of the device that lead to one host, because forwarding entries have no
 * protocol number. Excluded are learnt entries, entries that flood (MAC zero and groups), and
 * entries with a port or network of their own.
 */
function ownFdb(found: readonly FdbEntry[], device: number | undefined): ReadonlyMap<Mac, Ip> {
  const own = new Map<Mac, Ip>();
  for (const { index, mac, table, state, remote, port, vni } of found) {
    if (index !== device || table !== "self" || state !== "permanent") continue;
    if (remote === undefined || port !== undefined || vni !== undefined) continue;
    if (mac === "00:00:00:00:00:00" || Number.parseInt(mac.slice(0, 2), 16) % 2 === 1) continue;
    own.set(mac, remote);
  }
  return own;
}
