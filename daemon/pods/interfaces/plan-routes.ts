import { plannedKind } from "./kinds/kind-of.ts";
import type { PodSpec, RouteSpec } from "../../../api/pod-spec.ts";
import { type Cidr, contains, familyOf, type Ip, networkOf } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import type { GuestRoute } from "../../../guest-init/protocol/configure.ts";
import { type InterfacePlan, type PodPlan, staying } from "../store/pod-plan.ts";

const everything = (gateway: Ip): Cidr => (familyOf(gateway) === 4 ? "0.0.0.0/0" : "::/0") as Cidr;

/**
 * All routes of a guest: default routes by gateways, those asked for, those of links of CNI
 * plugins.
 */
export const routesOf = (plan: Pick<PodPlan, "interfaces" | "routes">): GuestRoute[] => [
  ...staying(plan.interfaces).flatMap(defaultRoutes),
  ...plan.routes,
  ...takenRoutes(plan),
];

/** The routes that the guest gets from links of CNI plugins. */
export const takenRoutes = ({ interfaces }: Pick<PodPlan, "interfaces">): readonly GuestRoute[] =>
  staying(interfaces).flatMap((each) => plannedKind(each).taken?.routes ?? []);

/** The routes asked for, each with the interface that it goes by. */
export const planRoutes = (spec: PodSpec, interfaces: readonly InterfacePlan[]): GuestRoute[] =>
  spec.routes.map((route, i) => planRoute(route, `routes[${i}]`, interfaces));

/** The default routes by an interface. */
export const defaultRoutes = ({ gateways, guestName }: InterfacePlan): GuestRoute[] =>
  gateways.map(({ gateway, metric }) => ({
    destination: everything(gateway),
    gateway,
    interface: guestName,
    ...(metric === undefined ? {} : { metric }),
  }));

/** A route that is asked for, with the interface it goes by. */
export function planRoute(
  route: RouteSpec,
  field: string,
  interfaces: readonly InterfacePlan[],
): GuestRoute {
  const { destination, gateway, metric } = route;
  const through = routeInterface(route, field, interfaces);
  return {
    destination,
    ...(gateway === undefined ? {} : { gateway }),
    interface: through.guestName,
    ...(metric === undefined ? {} : { metric }),
  };
}

function routeInterface(
  route: RouteSpec,
  field: string,
  interfaces: readonly InterfacePlan[],
): InterfacePlan {
  const { gateway } = route;
  if (gateway !== undefined && familyOf(gateway) !== familyOf(route.destination)) {
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `Gateway ${gateway} and destination ${route.destination} are of different families`,
      {
        field: `${field}.gateway`,
        hint: "Use an IPv4 gateway for an IPv4 destination, an IPv6 one for IPv6",
      },
    );
  }
  const reaches = (each: InterfacePlan): boolean =>
    gateway === undefined ||
    each.addresses.some((address) => contains(networkOf(address), gateway));
  if (route.interface !== undefined) {
    const named = interfaces.find(({ guestName }) => guestName === route.interface);
    if (named !== undefined && reaches(named)) return named;
    throw new PodnetError(
      "INVALID_ARGUMENT",
      named === undefined
        ? `There is no interface "${printable(route.interface)}"`
        : `Gateway ${gateway} is not in a network of interface "${named.guestName}"`,
      {
        field: named === undefined ? `${field}.interface` : `${field}.gateway`,
        hint: `Interfaces are: ${interfaces.map(({ guestName }) => guestName).join(", ")}`,
      },
    );
  }
  const found = gateway === undefined ? undefined : interfaces.find(reaches);
  if (found !== undefined) return found;
  throw new PodnetError(
    "INVALID_ARGUMENT",
    gateway === undefined
      ? `Route to ${route.destination} names neither gateway nor interface`
      : `Gateway ${gateway} is in no network of this pod`,
    {
      field: gateway === undefined ? field : `${field}.gateway`,
      hint: "Name the interface, or a gateway in one of the pod's networks",
    },
  );
}
