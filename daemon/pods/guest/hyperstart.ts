import type { OwnRoute, InterfaceChange } from "../../../api/validate/interface-change.ts";
import type { InterfaceSpec, PodSpec } from "../../../api/pod-spec.ts";
import { assertNever } from "../../../core/brand.ts";
import { PodnetError } from "../../../core/errors.ts";
import { describeForHyperstart } from "../../../guest-init/channel/hyperstart-plan.ts";
import type { Snapshot } from "../plan/snapshot.ts";
import { agent } from "./agent.ts";
import type { GuestKind } from "./kind.ts";

/**
 * A guest for which the spec names a plain hyperstart. It is sent messages that every hyperstart
 * understands, and so does podnet's agent.
 */
export const hyperstart: GuestKind = {
  ...agent,
  name: "hyperstart",
  takesIpv6: false,
  followsServers: false,
  showsServers: false,
  channel: { extension: false },
  text: {
    configureTitle: "Sent to the guest, and read back with ip addr and ip route",
    configureLines: describeForHyperstart,
    cannot: () => [
      "IPv6: a hyperstart takes no such addresses, routes or nameservers; of a network with both it has the IPv4 address alone",
      "addresses of lo: it sets none",
      "route metrics: it sets none",
      "files: it gives them neither owner nor mode",
      "shares: it mounts no directories by virtiofs",
      "templates: clones of it would share randomness and clock, for which it has no command",
      "more than 56 KiB of input for a program of podnet exec -i: what the program has not read would be lost; podnet cp brings more",
      "the end of a program that a signal killed: it says that such a program ended with 0",
      "name and nameservers for podnet exec: it writes them to /tmp/hyper, for containers alone",
      "routes of its own that survive a change: an interface that is changed goes down for a moment",
    ],
  },
  refuse,
  refuseChange,
  world,
  // Default servers that hyperstart cannot use are left out; servers that the spec names are not.
  dns: (offered) => ({ ...offered, servers: offered.servers.filter((server) => !isSix(server)) }),
};

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

function refuse({ interfaces, routes, dns, files, shares }: PodSpec): void {
  if (shares !== undefined)
    throw unsupported(
      "shares",
      "A plain hyperstart mounts no directories of the host",
      "Leave them out and use podnet cp, or use an image with podnet's own agent",
    );
  if (files !== undefined)
    throw unsupported(
      "files",
      "A plain hyperstart writes no files with owner and mode",
      "Leave them out and use podnet cp, or use an image with podnet's own agent",
    );
  interfaces.forEach((each, i) => refuseInterface(each, `interfaces[${i}]`));
  refuseRoutes(routes);
  dns?.servers.forEach((server, i) => refuseSix(server, `dns.servers[${i}]`, "DNS server"));
}

function refuseChange(change: InterfaceChange): void {
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
 * The networks without IPv6, as a plain hyperstart can use them: an automatic interface gets its
 * IPv4 address alone. Throws `UNSUPPORTED` where it would get no address.
 */
function world(
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
