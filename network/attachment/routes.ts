import { contains, familyOf, type Ip, networkOf } from "../../core/address.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import { appendRoute, deleteRoute } from "../../linux/rtnetlink/route-requests.ts";
import { mark } from "../desired.ts";
import { absent, type Deviation } from "../deviation.ts";
import type { AttachmentFragment, RouteDesired } from "./desired.ts";
import type { Step } from "./step.ts";

const main = 254;
/** Routes of the kernel's own making, to networks of addresses. */
const madeByKernel = 2;

/**
 * The steps from the routes there are to those there should be on a link. What stands in the way is taken away: ours that
 * is not wanted, and anybody's on this link that leads the same traffic elsewhere. Routes by other links stay, and are
 * asked first. Pure.
 */
export function planRoutes(
  fragment: Pick<AttachmentFragment, "guestLink" | "addresses" | "routes">,
  link: number,
  found: readonly Route[],
): Step[] {
  const { guestLink, routes } = fragment;
  const onLink = found.filter((route) => ways(route).some((way) => way.link === link));
  const right = (route: Route): boolean => routes.some((wanted) => is(route, wanted, link));
  const stale = onLink.filter(
    (route) =>
      !right(route) &&
      route.protocol !== madeByKernel &&
      (route.protocol === mark.routeProtocol || routes.some((wanted) => competes(route, wanted))),
  );
  const missing = routes.filter((wanted) => !onLink.some((route) => is(route, wanted, link)));
  return [
    ...stale.map((route) => ({
      deviation: deviationOf(guestLink, route, { found: way(route.gateway), wanted: absent }),
      request: deleteRoute({
        destination: route.destination,
        ...(route.gateway === undefined ? {} : { gateway: route.gateway }),
        link,
        table: route.table,
        protocol: route.protocol,
        ...(route.metric === 0 ? {} : { metric: route.metric }),
      }),
    })),
    ...missing.map((wanted) => ({
      deviation: deviationOf(guestLink, wanted, { found: absent, wanted: way(wanted.gateway) }),
      request: appendRoute({ ...newRoute(wanted, fragment), link }),
    })),
  ];
}

const way = (gateway: Ip | undefined): string =>
  gateway === undefined ? "on the link" : `by ${gateway}`;

const deviationOf = (
  link: string,
  { destination }: Pick<RouteDesired, "destination">,
  is: Omit<Deviation, "subject">,
): Deviation => ({ subject: `route of ${link} to ${destination}`, ...is });

const ways = ({ link, gateway, nextHops }: Route): readonly Pick<Route, "link" | "gateway">[] =>
  nextHops ?? [{ ...(link === undefined ? {} : { link }), ...(gateway && { gateway }) }];

/** Whether they are about the same packets, and neither is preferred by a metric that was asked for. */
const competes = (route: Route, { destination, table = main, priority }: RouteDesired): boolean =>
  route.destination === destination &&
  route.table === table &&
  (priority === undefined || route.metric === priority);

/** Whether the route is what is wanted, in all that is said of it. */
const is = (route: Route, wanted: RouteDesired, link: number): boolean =>
  competes(route, wanted) &&
  route.type === "unicast" &&
  ways(route).some((way) => way.link === link && way.gateway === wanted.gateway) &&
  (wanted.mtu === undefined || route.mtu === wanted.mtu) &&
  (wanted.advmss === undefined || route.advmss === wanted.advmss);

function newRoute(
  { destination, gateway, mtu, advmss, priority, table, scope }: RouteDesired,
  fragment: Pick<AttachmentFragment, "addresses" | "routes">,
): Parameters<typeof appendRoute>[0] {
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
