import {
  type Cidr,
  familyOf,
  type Ip,
  isLoopback,
  lengthOf,
  parseCidr,
  parseIp,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import type { InterfaceSpec, RouteSpec } from "../pod-spec.ts";
import { checkUnicast } from "./unicast.ts";
import { checkCount, invalid } from "../fields.ts";
import { guestNameOf, metricOf } from "./unique-interfaces.ts";

export const maxRoutes = 64;

/** Checks a pod's own routes, also against the gateways of its interfaces. */
export function validateRoutes(
  routes: readonly wire.Route[],
  interfaces: readonly InterfaceSpec[],
): readonly RouteSpec[] {
  checkCount(routes, maxRoutes, "routes");
  const names = interfaces.map(guestNameOf);
  const specs = routes.map((route, i) => validateRoute(route, `routes[${i}]`, names));
  // As the kernel tells routes apart: what goes to the same place differs in its metric.
  const key = (destination: Cidr, metric: number | undefined): string =>
    `${destination} ${metricOf(metric, familyOf(destination))}`;
  const seen = new Map<string, string>();
  interfaces.forEach(({ gateway, metric }, i) => {
    if (gateway !== undefined)
      seen.set(key(defaultOf(gateway), metric), `interfaces[${i}].gateway`);
  });
  specs.forEach(({ destination, metric }, i) => {
    const other = seen.get(key(destination, metric));
    if (other !== undefined) throw routeTwice(destination, `routes[${i}].destination`, other);
    seen.set(key(destination, metric), `routes[${i}]`);
  });
  return specs;
}

const defaultOf = (gateway: Ip): Cidr => (familyOf(gateway) === 4 ? "0.0.0.0/0" : "::/0") as Cidr;

function routeTwice(destination: Cidr, field: string, other: string): PodnetError {
  if (lengthOf(destination) === 0) {
    return new PodnetError(
      "GATEWAY_CONFLICT",
      `${other} has the default route for IPv${familyOf(destination)} already`,
      { field, hint: "Leave one of the two out, or give each another metric" },
    );
  }
  return invalid(field, `${other} goes to ${destination} too`, "Leave one of the two out");
}

/** Checks one route by itself, of a pod with interfaces of these names. */
export function validateRoute(
  route: wire.Route,
  field: string,
  names: readonly string[],
): RouteSpec {
  const gateway = route.gateway === "" ? undefined : parseIp(route.gateway, `${field}.gateway`);
  const destination = parseDestination(route.destination, gateway, `${field}.destination`);
  if (gateway !== undefined) {
    checkUnicast(gateway, `${field}.gateway`, { linkLocal: true });
    if (familyOf(gateway) !== familyOf(destination)) {
      throw new PodnetError(
        "ADDRESS_INVALID",
        `Gateway ${gateway} and destination ${destination} are of different families`,
        { field: `${field}.gateway`, hint: `Give an IPv${familyOf(destination)} gateway` },
      );
    }
  }
  if (gateway === undefined && route.interface === "") {
    throw invalid(
      field,
      `Nothing says how to reach ${destination}`,
      "Give a gateway, an interface, or both",
    );
  }
  if (route.interface !== "" && !names.includes(route.interface)) {
    throw invalid(
      `${field}.interface`,
      `The pod has no interface "${printable(route.interface)}"`,
      `Its interfaces are ${names.join(", ")}`,
    );
  }
  return {
    destination,
    ...(gateway === undefined ? {} : { gateway }),
    ...(route.interface === "" ? {} : { interface: route.interface }),
    ...(route.metric === 0 ? {} : { metric: route.metric }),
  };
}

function parseDestination(text: string, gateway: Ip | undefined, field: string): Cidr {
  if (text === "default") {
    if (gateway !== undefined) return defaultOf(gateway);
    throw invalid(
      field,
      "A default route without a gateway may be of either family",
      "Give a gateway, or write 0.0.0.0/0 or ::/0",
    );
  }
  const destination = parseCidr(text, field);
  const ip = destination.slice(0, destination.indexOf("/")) as Ip;
  if (isLoopback(ip) || (familyOf(ip) === 4 ? /^2(?:2[4-9]|3\d)\./ : /^ff/).test(ip)) {
    throw new PodnetError("ADDRESS_INVALID", `${destination} cannot be routed`, {
      field,
      hint: "Give a unicast network that is not loopback",
    });
  }
  return destination;
}
