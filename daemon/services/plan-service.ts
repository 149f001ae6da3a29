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
import { didYouMean } from "../../core/nearest.ts";
import type { Overlap } from "../../network/bridge/overlap.ts";
import {
  countSlots,
  countStickySlots,
  mostServicePorts,
  mostSlotsOfAll,
} from "../../network/model/service.ts";
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
  /** What the host has of them: addresses and routes. */
  readonly overlaps: readonly Overlap[];
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
      hint: `${didYouMean(
        spec.network,
        networks.map(({ name }) => name),
      )}See podnet network list`,
    });
  const addresses = planAddresses(spec, before, network, around);
  const places: Places = {
    families: addresses.map(familyOf),
    ofServices: isOfServices([...addresses, ...others.flatMap((each) => each.addresses)], around),
    networkOf: networkOfAddress(networks),
  };
  // What was a backend stays one: `endpointsOf` leaves out those that a network has since.
  const stays = before?.addresses.join() === addresses.join() ? before.backends : [];
  const known = new Set(stays.map(({ address }) => address));
  for (const [i, backend] of spec.backends.entries())
    if (!known.has(backend.address)) refuseBackend(backend, `backends[${i}].address`, places);
  const planned = { ...spec, addresses, ports: planPorts(spec, before, others) };
  refuseSlots(planned, others);
  return planned;
}

/** Services keep their addresses when `service_cidrs` changes. */
function isOfServices(
  taken: readonly Ip[],
  { cidrs }: ServiceSurroundings,
): (address: Ip) => boolean {
  const [find, all] = [networkFinder(cidrs), new Set(taken)];
  return (address) => all.has(address) || find(address) !== undefined;
}

/** Weights without a common divisor take a slot for each of their units, at each port. */
function refuseSlots(planned: ServiceDefinition, others: readonly ServiceDefinition[]): void {
  const asked = slotsAsked(planned);
  const left = mostSlotsOfAll - others.reduce((sum, each) => sum + slotsAsked(each), 0);
  if (asked <= left) return;
  throw new PodnetError(
    "LIMIT_REACHED",
    `The weights of these backends take ${asked} slots; ${Math.max(left, 0)} of ${mostSlotsOfAll} are left on this node`,
    {
      field: "backends",
      hint: "Give smaller weights, such as 1 and 2, or make the service with fewer ports",
      details: { limit: mostSlotsOfAll, asked },
    },
  );
}

/** The slots of backends that are named: a pod has an address of each family. Pure. */
const slotsAsked = ({ addresses, ports, backends, affinity }: ServiceDefinition): number =>
  addresses
    .map(familyOf)
    .map((family) =>
      (affinity === undefined ? countSlots : countStickySlots)(
        backends.filter(({ address }) => address === undefined || familyOf(address) === family),
      ),
    )
    .reduce((sum, each) => sum + each * ports.length, 0);

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
      if (before?.addresses.includes(address) === true) continue;
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
    refuseOverlap(cidr, around);
    return chooseAddress(cidr, spec.name, taken);
  });
}

function refuseAddress(address: Ip, field: string, around: ServiceSurroundings): void {
  const { cidrs, others, holderOf } = around;
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
  refuseOverlap(cidr, around);
}

/** Whoever has these addresses already could not be reached any more, by pods nor by the host. */
function refuseOverlap(cidr: Cidr, { networks, overlaps: held }: ServiceSurroundings): void {
  const ours = networks.flatMap(({ name, subnets }) =>
    subnets
      .filter((subnet) => overlaps(cidr, subnet.cidr))
      .map((subnet) => `network "${name}" (${subnet.cidr})`),
  );
  const [first] = [...ours, ...held.filter(({ subnet }) => subnet === cidr).map((has) => has.with)];
  if (first !== undefined)
    throw new PodnetError(
      "NETWORK_OVERLAP",
      `service_cidrs has ${cidr}, which overlaps with ${first}`,
      {
        field: "addresses",
        hint: "Set service_cidrs to a subnet that no network and no route of the host has, and restart podnetd",
        details: { subnet: cidr, overlaps: first },
      },
    );
}

/** Where addresses of backends may not be. */
interface Places {
  /** Of the service. */
  readonly families: readonly Family[];
  readonly ofServices: (address: Ip) => boolean;
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
  if (ofServices(address))
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

type FindNetwork = (address: Ip) => string | undefined;

/** What was found last: networks change rarely, and the same addresses are looked up often. */
let last: { readonly key: string; readonly find: FindNetwork } | undefined;
/** Addresses whose networks are remembered. */
const mostRemembered = 65_536;

/** Finds the network of podnet's that an address is in. */
export function networkOfAddress(networks: readonly NetworkDefinition[]): FindNetwork {
  const names = new Map(
    networks.flatMap(({ name, subnets }) => subnets.map(({ cidr }) => [cidr, name] as const)),
  );
  const key = [...names].join(" ");
  if (last?.key === key) return last.find;
  const find = networkFinder([...names.keys()]);
  const found = new Map<Ip, string | undefined>();
  const remember = (address: Ip): string | undefined => {
    if (found.has(address)) return found.get(address);
    if (found.size >= mostRemembered) found.clear();
    const cidr = find(address);
    const name = cidr && names.get(cidr);
    found.set(address, name);
    return name;
  };
  last = { key, find: remember };
  return remember;
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
