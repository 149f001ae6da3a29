import { type IpPrefix, familyOf, ipOf, lengthOf } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { decodeUtf8 } from "../../core/utf8.ts";
import type {
  GuestConfig,
  GuestDns,
  GuestInterface,
  GuestRoute,
  ObservedInterface,
} from "../protocol/configure.ts";
import {
  type AddressSetup,
  encodeInterfaceSetup,
  encodeRouteSetup,
  type InterfaceSetup,
  type RouteSetup,
} from "../protocol/network-messages.ts";
import { emptyStartPod, encodeStartPod, type StartPod } from "../protocol/pod-messages.ts";

const unsupported = (field: string, message: string): PodnetError =>
  new PodnetError("UNSUPPORTED", message, {
    field,
    hint: "Use an image with podnet's own agent",
  });

/** Refuses, before anything is sent, what a plain hyperstart cannot do. Throws `UNSUPPORTED`. */
export function checkForHyperstart(config: GuestConfig): void {
  const four = (text: string, field: string, what: string): void => {
    if (text.includes(":"))
      throw unsupported(field, `A plain hyperstart takes no IPv6 ${what}, and "${text}" is one`);
  };
  config.interfaces.forEach((wanted, i) =>
    wanted.addresses.forEach((address, k) =>
      four(address, `interfaces[${i}].addresses[${k}]`, "address"),
    ),
  );
  config.routes.forEach((route, i) => {
    four(route.destination, `routes[${i}].destination`, "route");
    if (route.metric !== undefined && route.metric !== 0)
      throw unsupported(`routes[${i}].metric`, "A plain hyperstart sets no route metrics");
  });
  // Its buffer for one server is 28 bytes and it reads past the end of longer ones.
  config.dns?.servers.forEach((server, i) => four(server, `dns.servers[${i}]`, "DNS server"));
  if ((config.loopback ?? []).length > 0)
    throw unsupported("interfaces", "A plain hyperstart sets no addresses of lo");
  if (config.neighbours.length > 0)
    throw unsupported("neighbours[0]", "A plain hyperstart sets no neighbours");
}

const setup = (prefix: IpPrefix, remove: boolean): AddressSetup => ({
  address: ipOf(prefix),
  length: lengthOf(prefix),
  remove,
});

/**
 * The SETUPINTERFACE that turns `found` into `wanted`; undefined when they are equal. It is sent
 * only when needed: hyperstart takes the link down for a rename or an MTU, and the routes with it.
 */
export function interfaceStep(
  wanted: GuestInterface,
  found: ObservedInterface,
): InterfaceSetup | undefined {
  const four = found.addresses.filter((address) => familyOf(address) === 4);
  const addresses = [
    ...four.filter((a) => !wanted.addresses.includes(a)).map((a) => setup(a, true)),
    ...wanted.addresses.filter((a) => !four.includes(a)).map((a) => setup(a, false)),
  ];
  const rename = wanted.name !== found.name;
  const mtu = wanted.mtu !== undefined && wanted.mtu !== found.mtu ? wanted.mtu : undefined;
  if (found.up && !rename && mtu === undefined && addresses.length === 0) return undefined;
  return {
    device: found.name,
    ...(rename ? { newName: wanted.name } : {}),
    addresses,
    ...(mtu === undefined ? {} : { mtu }),
  };
}

/**
 * Routes to remove: surplus ones, and ones in the place of a wanted route. hyperstart has no
 * command for it; the guest's own `ip`, which also reads routes back, has.
 */
export const routesInTheWay = (
  { routes: wanted, interfaces }: GuestConfig,
  reported: readonly GuestRoute[],
  found: readonly GuestRoute[],
): GuestRoute[] => {
  const missing = missingRoutes(wanted, found);
  const surplus = surplusRoutes(wanted, reported, found);
  return found.filter(
    (route) =>
      interfaces.some(({ name }) => name === route.interface) &&
      (surplus.some((other) => sameRoute(route, other)) ||
        missing.some(({ destination }) => destination === route.destination)),
  );
};

/** The command that takes a route away. */
export const routeRemoval = ({ destination, gateway, interface: name }: GuestRoute): string[] => [
  "ip",
  "route",
  "del",
  destination === "0.0.0.0/0" ? "default" : destination,
  ...(gateway === undefined ? [] : ["via", gateway]),
  "dev",
  name,
];

/**
 * Routes that the guest was configured with, that are no longer wanted, and that it still has.
 * Routes of the guest's own programs stay.
 */
const surplusRoutes = (
  wanted: readonly GuestRoute[],
  reported: readonly GuestRoute[],
  found: readonly GuestRoute[],
): GuestRoute[] =>
  missingRoutes(reported, wanted).filter((route) => found.some((other) => sameRoute(route, other)));

const routeStep = (route: GuestRoute): RouteSetup => ({
  destination: route.destination,
  ...(route.gateway === undefined ? {} : { gateway: route.gateway }),
  device: route.interface,
});

const sameRoute = (a: GuestRoute, b: GuestRoute): boolean =>
  a.destination === b.destination && a.gateway === b.gateway && a.interface === b.interface;

/**
 * Neighbourhoods first: a gateway may be within reach by one of the routes that are still to be
 * set.
 */
export const routeSteps = (routes: readonly GuestRoute[]): RouteSetup[] =>
  routes
    .toSorted((a, b) => Number(a.gateway !== undefined) - Number(b.gateway !== undefined))
    .map(routeStep);

/** Routes of `wanted` that are not among `found`. */
export const missingRoutes = (
  wanted: readonly GuestRoute[],
  found: readonly GuestRoute[],
): GuestRoute[] => wanted.filter((route) => !found.some((other) => sameRoute(route, other)));

/** The state read back from a guest. */
export interface ReadBack {
  readonly interfaces: readonly ObservedInterface[];
  readonly routes: readonly GuestRoute[];
  readonly loopbackUp: boolean;
  /** Empty, like the servers, when it cannot be read. */
  readonly hostname: string;
  readonly dns: GuestDns;
}

/** Describes how the guest differs from its configuration; empty when it does not. */
export function shortfalls(
  config: GuestConfig,
  reported: readonly GuestRoute[],
  { interfaces, routes, loopbackUp, hostname, dns }: ReadBack,
): string[] {
  const missing = missingRoutes(config.routes, routes).map(
    (r) => `route ${r.destination}${r.gateway === undefined ? "" : ` via ${r.gateway}`} is missing`,
  );
  const faults = config.interfaces.flatMap((wanted) => {
    const found = interfaces.find((other) => other.mac === wanted.mac);
    if (found === undefined) return [`interface ${wanted.mac} is missing`];
    const step = interfaceStep(wanted, found);
    if (step === undefined) return [];
    return [
      ...(step.newName === undefined ? [] : [`${found.name} is not named ${wanted.name}`]),
      ...(step.mtu === undefined ? [] : [`${found.name} has MTU ${found.mtu}, not ${step.mtu}`]),
      ...(found.up ? [] : [`${found.name} is down`]),
      ...step.addresses.map(
        (a) => `${found.name} ${a.remove ? "still has" : "lacks"} ${a.address}/${a.length}`,
      ),
    ];
  });
  const surplus = surplusRoutes(config.routes, reported, routes).map(
    ({ destination }) => `route ${destination} is still there`,
  );
  return [
    ...(loopbackUp ? [] : ["lo is down"]),
    ...faults,
    ...missing,
    ...surplus,
    ...named(config, hostname, dns),
  ];
}

/**
 * Name and nameservers are files, which an image may keep from being read; what can be read is
 * compared.
 */
function named(config: GuestConfig, hostname: string, dns: GuestDns): string[] {
  const servers = dns.servers.length === 0 ? [] : (config.dns?.servers ?? []);
  const lacking = servers.filter((server) => !dns.servers.includes(server));
  const misnamed = hostname !== "" && config.hostname !== undefined && hostname !== config.hostname;
  return [
    ...(misnamed ? [`it is not named ${config.hostname}`] : []),
    ...lacking.map((server) => `nameserver ${server} is missing`),
  ];
}

/** Interfaces that do not have the name they are to have, in words. */
export const misnamed = (
  { interfaces }: GuestConfig,
  found: readonly ObservedInterface[],
): string[] =>
  interfaces.flatMap((wanted) => {
    const there = found.find(({ mac }) => mac === wanted.mac);
    if (there === undefined || there.name === wanted.name) return [];
    return [`${there.name} is not named ${wanted.name}`];
  });

/** The STARTPOD of a configuration, which is sent once. */
export const podOf = ({ hostname, dns }: GuestConfig): StartPod => ({
  ...emptyStartPod,
  ...(hostname === undefined ? {} : { hostname }),
  dns: dns?.servers ?? [],
  dnsSearch: dns?.search ?? [],
  dnsOptions: dns?.options ?? [],
});

/**
 * The commands for a guest, for a plan: a new guest gets all, a running one the missing ones. The
 * guest's names of its NICs before they are renamed are not known yet.
 */
export function describeForHyperstart(config: GuestConfig, fresh: boolean): string[] {
  const setups = config.interfaces.map(({ mac, name, addresses, mtu }) => ({
    device: `(the NIC ${mac})`,
    newName: name,
    addresses: addresses.map((address) => setup(address, false)),
    ...(mtu === undefined ? {} : { mtu }),
  }));
  const lines: [string, Uint8Array][] = [
    ...(fresh ? [["STARTPOD", encodeStartPod(podOf(config))] as [string, Uint8Array]] : []),
    ...setups.map((each): [string, Uint8Array] => ["SETUPINTERFACE", encodeInterfaceSetup(each)]),
    ["SETUPROUTE", encodeRouteSetup(routeSteps(config.routes))],
  ];
  return lines.map(([command, payload]) => `${command} ${decodeUtf8(payload)}`);
}
