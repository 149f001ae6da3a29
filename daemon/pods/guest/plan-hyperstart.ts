import type { OwnRoute, InterfaceChange } from "../../../api/validate-interface-change.ts";
import type { InterfaceSpec, PodSpec } from "../../../api/pod-spec.ts";
import { assertNever } from "../../../core/brand.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { Snapshot } from "../plan/snapshot.ts";

const unsupported = (field: string, message: string, hint: string): PodnetError =>
  new PodnetError("UNSUPPORTED", message, { field, hint });

const isSix = (text: string): boolean => text.includes(":");

function refuseSix(text: string | null | undefined, field: string, what: string): void {
  if (text === undefined || text === null || !isSix(text)) return;
  throw unsupported(
    field,
    `A plain hyperstart takes no IPv6 ${what}, and "${text}" is one`,
    "Give IPv4 alone, or use an image with podnet's own agent",
  );
}

function refuseMetric(metric: number | null | undefined, field: string): void {
  if (metric === undefined || metric === null) return;
  throw unsupported(
    field,
    "A plain hyperstart sets no route metrics",
    "Leave it out, or use an image with podnet's own agent",
  );
}

/** Refuses what a plain hyperstart cannot do, before anything is decided. Throws `UNSUPPORTED` with the field. */
export function refuseForHyperstart({ interfaces, routes, dns }: PodSpec): void {
  interfaces.forEach((each, i) => refuseInterface(each, `interfaces[${i}]`));
  refuseRoutes(routes);
  dns?.servers.forEach((server, i) => refuseSix(server, `dns.servers[${i}]`, "DNS server"));
}

/** The same of a change. */
export function refuseChangeForHyperstart(change: InterfaceChange): void {
  switch (change.kind) {
    case "add":
      refuseInterface(change.spec, "interface");
      return refuseRoutes(change.routes);
    case "set":
      refuseAddresses(change.addresses, "");
      refuseSix(change.gateway, "gateway", "gateway");
      refuseMetric(change.metric, "metric");
      return refuseRoutes(change.routes ?? []);
    case "remove":
      return;
    default:
      return assertNever(change);
  }
}

function refuseInterface({ kind, addresses, gateway, metric }: InterfaceSpec, field: string): void {
  if (kind === "loopback")
    throw unsupported(
      `${field}.loopback`,
      "A plain hyperstart sets no addresses of lo",
      "Leave it out, or use an image with podnet's own agent",
    );
  refuseAddresses(addresses, `${field}.`);
  refuseSix(gateway, `${field}.gateway`, "gateway");
  refuseMetric(metric, `${field}.metric`);
}

function refuseAddresses(addresses: InterfaceSpec["addresses"], before: string): void {
  addresses?.forEach((address, i) =>
    refuseSix(
      address,
      before !== "" && addresses.length === 1 ? `${before}address` : `${before}addresses[${i}]`,
      "address",
    ),
  );
}

function refuseRoutes(routes: readonly OwnRoute[]): void {
  routes.forEach(({ destination, gateway, metric }, i) => {
    refuseSix(destination, `routes[${i}].destination`, "route");
    refuseSix(gateway, `routes[${i}].gateway`, "gateway");
    refuseMetric(metric, `routes[${i}].metric`);
  });
}

/**
 * The world as a plain hyperstart can make use of it: networks without IPv6, so that an interface that is given its
 * addresses gets the IPv4 one alone. Throws `UNSUPPORTED` where it would get none.
 */
export function worldOfHyperstart(
  snapshot: Snapshot,
  interfaces: readonly InterfaceSpec[],
  fieldOf: (i: number) => string,
): Snapshot {
  const networks = snapshot.networks.map((network) => ({
    ...network,
    subnets: network.subnets.filter(({ cidr }) => !isSix(cidr)),
  }));
  interfaces.forEach((each, i) => {
    if (each.kind !== undefined || each.addresses !== undefined) return;
    const found = networks.find(({ name }) => name === each.network);
    if (found === undefined || found.subnets.length > 0) return;
    throw unsupported(
      `${fieldOf(i)}.network`,
      `A plain hyperstart takes no IPv6 address, and network "${each.network}" has no other`,
      'Name a network with IPv4, or ask for the address "none"',
    );
  });
  return { ...snapshot, networks };
}
