import type { BackendSpec, ServiceSpec } from "../../api/service-spec.ts";
import {
  type Cidr,
  contains,
  type Family,
  familyOf,
  type Ip,
  ipToBigInt,
  networkFinder,
  overlaps,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { mostServicePorts } from "../../network/model/service.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { chooseAddress, usableRange } from "./choose-address.ts";
import type { ServiceDefinition, ServicePortDefinition } from "./store.ts";

/** What the planner may know. */
export interface ServiceSurroundings {
  readonly networks: readonly NetworkDefinition[];
  /** The other services. */
  readonly others: readonly ServiceDefinition[];
  /** Subnets that addresses come from. */
  readonly cidrs: readonly Cidr[];
  /** The pod or container that has an address. */
  readonly holderOf: (address: Ip) => string | undefined;
}

/** Services on one host. */
const mostServices = 4096;

/**
 * Decides everything about a service that was asked for. Pure. `before` is what it was. Throws
 * `NETWORK_NOT_FOUND`, `INVALID_ARGUMENT`, `ADDRESS_OUT_OF_RANGE`, `ADDRESS_RESERVED`,
 * `ADDRESS_IN_USE`, `NETWORK_OVERLAP`, `POOL_EXHAUSTED`, `LIMIT_REACHED`.
 */
export function planService(
  spec: ServiceSpec,
  before: ServiceDefinition | undefined,
  around: ServiceSurroundings,
): ServiceDefinition {
  const { others, networks } = around;
  if (before === undefined && others.length >= mostServices)
    throw new PodnetError("LIMIT_REACHED", `A node has at most ${mostServices} services`, {
      hint: "Delete one that is not used: podnet service delete",
      details: { limit: mostServices },
    });
  const network = networks.find(({ name }) => name === spec.network);
  if (network === undefined)
    throw new PodnetError("NETWORK_NOT_FOUND", `There is no network "${spec.network}"`, {
      field: "network",
      hint: "See podnet network list",
    });
  const addresses = planAddresses(spec, before, network, around);
  const places: Places = {
    families: addresses.map(familyOf),
    ofServices: networkFinder(around.cidrs),
    networkOf: networkOfAddress(networks),
  };
  for (const [i, backend] of spec.backends.entries())
    refuseBackend(backend, `backends[${i}].address`, places);
  return { ...spec, addresses, ports: planPorts(spec, before, others) };
}

/** Of an update without addresses they stay. */
function planAddresses(
  spec: ServiceSpec,
  before: ServiceDefinition | undefined,
  network: NetworkDefinition,
  around: ServiceSurroundings,
): readonly Ip[] {
  const has = (family: Family): boolean =>
    network.subnets.some(({ cidr }) => familyOf(cidr) === family);
  const taken = new Set(around.others.flatMap(({ addresses }) => addresses));
  if (spec.addresses.length > 0) {
    for (const address of spec.addresses) {
      const field = `addresses[${spec.addresses.indexOf(address)}]`;
      if (!has(familyOf(address)))
        throw new PodnetError(
          "INVALID_ARGUMENT",
          `Network "${network.name}" has no IPv${familyOf(address)}`,
          { field, hint: "Choose an address of the other family, or another network" },
        );
      refuseAddress(address, field, around);
    }
    return spec.addresses;
  }
  if (before !== undefined) return before.addresses;
  const usable = around.cidrs.filter((cidr) => has(familyOf(cidr)));
  if (usable.length === 0)
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `service_cidrs has no subnet of an address family of network "${network.name}"`,
      { field: "network", hint: "Set service_cidrs in podnetd's configuration, and restart it" },
    );
  return usable.map((cidr) => {
    refuseOverlap(cidr, around.networks);
    return chooseAddress(cidr, spec.name, taken);
  });
}

function refuseAddress(
  address: Ip,
  field: string,
  { cidrs, others, networks, holderOf }: ServiceSurroundings,
): void {
  const cidr = cidrs.find((each) => contains(each, address));
  if (cidr === undefined)
    throw new PodnetError("ADDRESS_OUT_OF_RANGE", `${address} is not an address of services`, {
      field,
      hint: `Choose one of ${cidrs.join(" or ") || "service_cidrs, which is empty"}, or leave it out`,
      details: { address },
    });
  const { first, last } = usableRange(cidr);
  const value = ipToBigInt(address);
  if (value < first || value > last)
    throw new PodnetError("ADDRESS_RESERVED", `${address} is the first or last of ${cidr}`, {
      field,
      hint: "Choose an address between them",
    });
  const other = others.find(({ addresses }) => addresses.includes(address));
  const holder = other === undefined ? holderOf(address) : `service "${other.name}"`;
  if (holder !== undefined)
    throw new PodnetError("ADDRESS_IN_USE", `${address} is the address of ${holder}`, {
      field,
      hint: "Choose another, or leave it out",
      details: { address, holder },
    });
  refuseOverlap(cidr, networks);
}

/** A network of that subnet would have pods at the addresses of services. */
function refuseOverlap(cidr: Cidr, networks: readonly NetworkDefinition[]): void {
  for (const { name, subnets } of networks)
    for (const subnet of subnets)
      if (overlaps(cidr, subnet.cidr))
        throw new PodnetError(
          "NETWORK_OVERLAP",
          `service_cidrs has ${cidr}, which overlaps with network "${name}" (${subnet.cidr})`,
          {
            field: "addresses",
            hint: "Set service_cidrs to a subnet that no network has, and restart podnetd",
            details: { subnet: cidr, network: name },
          },
        );
}

/** Where addresses of backends may not be. */
interface Places {
  /** Of the service. */
  readonly families: readonly Family[];
  readonly ofServices: (address: Ip) => Cidr | undefined;
  readonly networkOf: (address: Ip) => string | undefined;
}

function refuseBackend({ address }: BackendSpec, field: string, places: Places): void {
  if (address === undefined) return;
  const { families, ofServices, networkOf } = places;
  if (!families.includes(familyOf(address)))
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `The service has no address of IPv${familyOf(address)}`,
      {
        field,
        hint: "Give the service an address of that family, or take a backend of the other one",
      },
    );
  if (ofServices(address) !== undefined)
    throw new PodnetError("INVALID_ARGUMENT", `${address} is an address of services`, {
      field,
      hint: "Give the backends of that service instead",
    });
  const inside = networkOf(address);
  if (inside !== undefined)
    throw new PodnetError("INVALID_ARGUMENT", `${address} is in network "${inside}"`, {
      field,
      hint: "Name the pod instead: a service leads to pods of its own network, and to addresses outside of all networks",
      details: { network: inside },
    });
}

/** Finds the network of podnet's that an address is in. Pure. */
export function networkOfAddress(
  networks: readonly NetworkDefinition[],
): (address: Ip) => string | undefined {
  const names = new Map(
    networks.flatMap(({ name, subnets }) => subnets.map(({ cidr }) => [cidr, name] as const)),
  );
  const find = networkFinder([...names.keys()]);
  return (address) => {
    const cidr = find(address);
    return cidr && names.get(cidr);
  };
}

/** A port keeps its number. */
function planPorts(
  { ports }: ServiceSpec,
  before: ServiceDefinition | undefined,
  others: readonly ServiceDefinition[],
): ServicePortDefinition[] {
  const known = before?.ports ?? [];
  const taken = new Set(
    [...others.flatMap((other) => other.ports), ...known].map(({ number }) => number),
  );
  let next = 1;
  return ports.map((spec) => {
    const kept = known.find(
      ({ protocol, port }) => protocol === spec.protocol && port === spec.port,
    );
    if (kept !== undefined) return { ...spec, number: kept.number };
    while (taken.has(next)) next++;
    if (next >= mostServicePorts)
      throw new PodnetError(
        "LIMIT_REACHED",
        `The services of a node have at most ${mostServicePorts - 1} ports`,
        { field: "ports", hint: "Delete services that are not used: podnet service delete" },
      );
    taken.add(next);
    return { ...spec, number: next };
  });
}
