import { contains, familyOf, type Ip, networkOf } from "../../core/address.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import {
  addRoute,
  appendRoute,
  deleteRoute,
  type NewRoute,
} from "../../linux/rtnetlink/route-requests.ts";
import { mark } from "../model/desired.ts";
import { absent, type Deviation } from "../model/deviation.ts";
import type { AttachmentFragment, RouteDesired, InsidePart } from "./desired.ts";
import type { RouteBehind, Step } from "./step.ts";

const main = 254;
const local = 255;
/** Routes of the kernel's own making, to networks of addresses. */
const madeByKernel = 2;
/** IP6_RT_PRIO_USER of linux/ipv6_route.h: the default metric of an IPv6 route. */
const usualMetric6 = 1024;

/**
 * The steps from the observed routes of a link to the desired ones. Conflicting routes are removed:
 * our routes that are not wanted, and any route on this link that sends the wanted traffic
 * elsewhere. Routes by other links stay and take precedence: an IPv4 route of ours is appended
 * after them. An IPv6 route cannot be appended, because the kernel makes it a next hop of the
 * existing route (`fib6_add_rt2node`); it gets a larger metric instead. A route that another plugin
 * moved to a table of its own (`sbr`) counts as present. Pure.
 */
export function planRoutes(
  fragment: Pick<AttachmentFragment, "guestLink" | "addresses" | "routes">,
  link: number,
  found: readonly Route[],
): Step[] {
  const { guestLink, routes } = fragment;
  const onLink = found.filter((route) => ways(route).some((way) => way.link === link));
  const right = (route: Route): boolean => routes.some((wanted) => is(route, wanted, link));
  const moved = routes.filter((wanted) => onLink.some((route) => isMoved(route, wanted, link)));
  const handled = (route: Route): boolean =>
    moved.some((wanted) => isMoved(route, wanted, link) || competes(route, wanted));
  const joined = onLink.flatMap((route) => hopInForeign(route, routes, link));
  const stale = onLink.filter(
    (route) =>
      !right(route) &&
      !handled(route) &&
      route.nextHops === undefined &&
      route.protocol !== madeByKernel &&
      (route.protocol === mark.routeProtocol || routes.some((wanted) => competes(route, wanted))),
  );
  const missing = routes.filter(
    (wanted) => !moved.includes(wanted) && !onLink.some((route) => is(route, wanted, link)),
  );
  return [
    ...[...stale, ...joined].map((route) => ({
      deviation: deviationOf(guestLink, route, { found: way(route.gateway), wanted: absent }),
      part: partOf(route),
      request: deleteRoute({
        destination: route.destination,
        ...(route.gateway === undefined ? {} : { gateway: route.gateway }),
        link,
        table: route.table,
        ...(joined.includes(route) ? {} : { protocol: route.protocol }),
        ...(route.metric === 0 ? {} : { metric: route.metric }),
      }),
    })),
    ...missing.map((wanted) => ({
      deviation: deviationOf(guestLink, wanted, { found: absent, wanted: way(wanted.gateway) }),
      part: partOf(wanted),
      ...requestFor({ ...newRoute(wanted, fragment), link }, wanted),
    })),
  ];
}

function requestFor(route: NewRoute, wanted: RouteDesired): Pick<Step, "request" | "behind"> {
  if (familyOf(route.destination) === 4) return { request: appendRoute(route) };
  return {
    request: addRoute(route),
    behind: (found): RouteBehind => {
      const metric = metricBehind(found, wanted);
      return {
        request: addRoute({ ...route, metric }),
        route: { ...wanted, priority: metric },
      };
    },
  };
}

/** The smallest metric above the wanted one that no route to the destination has. */
function metricBehind(found: readonly Route[], wanted: RouteDesired): number {
  const { destination, table = main, priority = usualMetric6 } = wanted;
  const taken = found
    .filter((route) => route.destination === destination && route.table === table)
    .map(({ metric }) => metric);
  let metric = priority + 1;
  while (taken.includes(metric)) metric++;
  return metric;
}

/**
 * Our next hop in a foreign route, which an earlier podnet added: a share of the flows would leave
 * by our link. A next hop that others add to our route is left alone, because the route has our
 * protocol.
 */
function hopInForeign(route: Route, wanted: readonly RouteDesired[], link: number): Route[] {
  const { nextHops, protocol, ...whole } = route;
  if (nextHops === undefined || protocol === mark.routeProtocol) return [];
  const hop = nextHops.find(
    (each) =>
      each.link === link &&
      wanted.some((one) => competes(route, one) && one.gateway === each.gateway),
  );
  return hop === undefined
    ? []
    : [{ ...whole, protocol, link, ...(hop.gateway && { gateway: hop.gateway }) }];
}

/** Which part of the inside a route is. */
export const partOf = ({ destination }: Pick<RouteDesired, "destination">): InsidePart =>
  `route ${destination}`;

/** Whether it is a route that was wanted in the main table, in another one. */
const isMoved = (
  route: Route,
  { destination, gateway, table }: RouteDesired,
  link: number,
): boolean =>
  table === undefined &&
  route.destination === destination &&
  route.table !== main &&
  route.table !== local &&
  route.type === "unicast" &&
  route.link === link &&
  route.gateway === gateway;

const way = (gateway: Ip | undefined): string =>
  gateway === undefined ? "on the link" : `by ${gateway}`;

const deviationOf = (
  link: string,
  { destination }: Pick<RouteDesired, "destination">,
  is: Omit<Deviation, "subject">,
): Deviation => ({ subject: `route of ${link} to ${destination}`, ...is });

const ways = ({ link, gateway, nextHops }: Route): readonly Pick<Route, "link" | "gateway">[] =>
  nextHops ?? [{ ...(link === undefined ? {} : { link }), ...(gateway && { gateway }) }];

/**
 * Whether both routes apply to the same packets, and neither has an explicit metric that makes it
 * preferred.
 */
const competes = (route: Route, { destination, table = main, priority }: RouteDesired): boolean =>
  route.destination === destination &&
  route.table === table &&
  (priority === undefined ||
    route.metric === priority ||
    // Ours may be behind another link's.
    (route.family === 6 && route.protocol === mark.routeProtocol && route.metric > priority));

/** Whether the route equals the wanted one in every property that the latter specifies. */
const is = (route: Route, wanted: RouteDesired, link: number): boolean =>
  competes(route, wanted) &&
  route.type === "unicast" &&
  hopInForeign(route, [wanted], link).length === 0 &&
  ways(route).some((way) => way.link === link && way.gateway === wanted.gateway) &&
  (wanted.mtu === undefined || route.mtu === wanted.mtu) &&
  (wanted.advmss === undefined || route.advmss === wanted.advmss);

function newRoute(
  { destination, gateway, mtu, advmss, priority, table, scope }: RouteDesired,
  fragment: Pick<AttachmentFragment, "addresses" | "routes">,
): NewRoute {
  return {
    destination,
    protocol: mark.routeProtocol,
    ...(gateway === undefined ? {} : { gateway }),
    ...(gateway === undefined || isReached(gateway, fragment) ? {} : { onlink: true }),
    ...(mtu === undefined ? {} : { mtu }),
    ...(advmss === undefined ? {} : { advmss }),
    ...(priority === undefined ? {} : { metric: priority }),
    ...(table === undefined ? {} : { table }),
    ...(scope === undefined ? {} : { scope }),
  };
}

/** Whether an address, or a route without a gateway, says that the gateway is on the link. */
function isReached(
  gateway: Ip,
  { addresses, routes }: Pick<AttachmentFragment, "addresses" | "routes">,
): boolean {
  if (gateway.startsWith("fe80:")) return true;
  const direct = routes.filter((route) => route.gateway === undefined);
  return [...addresses.map(networkOf), ...direct.map(({ destination }) => destination)].some(
    (network) => familyOf(network) === familyOf(gateway) && contains(network, gateway),
  );
}
