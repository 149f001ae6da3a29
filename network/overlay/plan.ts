import type { Cidr } from "../../core/address.ts";
import { mark } from "../model/desired.ts";
import type { OverlayChange, PeerChange, RouteTo } from "./change.ts";
import { type DevicePlan, planDevice } from "./plan-device.ts";
import type { ObservedDevice } from "./observed-device.ts";
import { planTunnelPeers } from "./udp/plan.ts";
import type { PeerTables, WantedSide } from "./wanted.ts";

/** The observed state of one address family: only objects that the overlay manages. */
export interface ObservedSide extends PeerTables {
  readonly device: ObservedDevice | undefined;
  /**
   * Our routes that their destination does not identify: another route has that destination, or
   * they are flannel's.
   */
  readonly strays: readonly StrayRoute[];
}

export interface StrayRoute extends RouteTo {
  readonly protocol: number;
  readonly metric: number;
}

/** The metric of our routes: the kernel's default. */
export const ownMetric = (destination: Cidr): number => (destination.includes(":") ? 1024 : 0);

/**
 * The changes that bring one address family from the observed to the wanted state: the device; then
 * removed routes, so that no packet is sent to a peer that is gone; then neighbours, forwarding
 * entries and, last, new routes, because the kernel would resolve the neighbour of a route that has
 * none; then the removal of entries that no route needs. Pure. Throws `OVERLAY_CONFLICT`.
 */
export function planSide(
  name: string,
  network: Cidr,
  wanted: WantedSide,
  observed: ObservedSide,
): OverlayChange[] {
  const { device, changes } = planDevice(name, network, wanted.device, observed.device);
  return [
    ...changes,
    ...planTunnelPeers(name, wanted.tunnel, observed.tunnel),
    ...planPeers(wanted, { ...observed, ...lost[device](observed, wanted) }),
  ];
}

/** The changes of the peers' entries. Pure. */
export function planPeers(
  wanted: Pick<WantedSide, "device" | "neighbours" | "fdb" | "routes">,
  observed: PeerTables & { readonly strays: readonly StrayRoute[] },
): PeerChange[] {
  const gone: PeerChange[] = [];
  const come: PeerChange[] = [];
  const left: PeerChange[] = [];
  for (const [destination, route] of observed.routes)
    if (!wanted.routes.has(destination)) gone.push(removal(route));
  // A route of ours to that destination replaces it.
  for (const stray of observed.strays)
    if (stray.metric !== ownMetric(stray.destination) || !wanted.routes.has(stray.destination))
      gone.push({ kind: "remove-route", ...stray });
  const device = wanted.device?.device;
  if (device !== undefined) {
    for (const [ip, mac] of wanted.neighbours)
      if (observed.neighbours.get(ip) !== mac)
        come.push({ kind: "set-neighbour", device, ip, mac });
    for (const [mac, remote] of wanted.fdb)
      if (observed.fdb.get(mac) !== remote) come.push({ kind: "set-fdb", device, mac, remote });
    for (const [mac, remote] of observed.fdb)
      if (!wanted.fdb.has(mac)) left.push({ kind: "remove-fdb", device, mac, remote });
    for (const ip of observed.neighbours.keys())
      if (!wanted.neighbours.has(ip)) left.push({ kind: "remove-neighbour", device, ip });
  }
  for (const [destination, route] of wanted.routes)
    if (!sameRoute(route, observed.routes.get(destination)))
      come.push({ kind: "set-route", ...route });
  return [...gone, ...come, ...left];
}

const removal = (route: RouteTo): PeerChange => ({
  kind: "remove-route",
  ...route,
  protocol: mark.routeProtocol,
  metric: ownMetric(route.destination),
});

const sameRoute = (a: RouteTo, b: RouteTo | undefined): boolean =>
  b !== undefined && a.gateway === b.gateway && a.link === b.link && a.onlink === b.onlink;

/** The entries that a change of the device deletes, and that have to be made again. */
const lost: Readonly<
  Record<
    DevicePlan["device"],
    (observed: ObservedSide, wanted: WantedSide) => Partial<ObservedSide>
  >
> = {
  kept: () => ({}),
  // (The kernel forgets neighbours of a device whose own address changes, for good ones, too.)
  readdressed: () => ({ neighbours: new Map() }),
  made: withoutDevice,
};

function withoutDevice(observed: ObservedSide, wanted: WantedSide): Partial<ObservedSide> {
  const name = wanted.device?.device;
  const elsewhere = ({ link }: RouteTo): boolean => link !== name;
  return {
    neighbours: new Map(),
    fdb: new Map(),
    routes: new Map([...observed.routes].filter(([, route]) => elsewhere(route))),
    strays: observed.strays.filter(elsewhere),
  };
}
