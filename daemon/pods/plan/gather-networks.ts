import { bareIp, type InterfaceSpec, type PodSpec } from "../../../api/pod-spec.ts";
import { contains, type Family, familyOf, type Ip, ipOf } from "../../../core/address.ts";
import type { PodId } from "../../../core/names.ts";
import { readHostDns } from "../../networks/host-dns.ts";
import type { NetworkDefinition, SubnetDefinition } from "../../config/network-definition.ts";
import { containerOf } from "../../ipam/holders.ts";
import type { AttachmentId } from "../../store/holder.ts";
import { networkAsked } from "../interfaces/kinds/network.ts";
import { guestOf } from "../guest/guest-of.ts";
import type { KnownNetworks } from "../../networks/known-networks.ts";
import type { Database } from "../../store/database.ts";
import { countInterfaces } from "../store/interfaces.ts";
import { podNameById } from "../store/pods.ts";
import { requestsOf, stayingOf } from "../store/pod-interfaces.ts";
import type { PodContents } from "../store/pod-row.ts";
import type { Addresses, AddressStatus } from "../../ipam/addresses.ts";
import { planServers, sameServers } from "../interfaces/plan-servers.ts";
import type { PodPlan } from "../store/pod-plan.ts";
import type { NetworkSnapshot, Snapshot, SubnetSnapshot } from "./snapshot.ts";

export interface NetworksWorld {
  readonly db: Database;
  readonly addresses: Addresses;
  readonly networks: KnownNetworks;
}

/** The networks as the planner may know them: of those the spec does not name, no addresses. */
export function networkSnapshots(spec: PodSpec, world: NetworksWorld): NetworkSnapshot[] {
  world.networks.refuseChanging(networksOf(spec));
  return world.networks.list().map((network) => networkSnapshot(network, spec, world));
}

/** Names of the networks a spec's interfaces are on, in their order. */
const networksOf = ({ interfaces }: PodSpec): string[] =>
  interfaces.flatMap((each) => networkAsked(each) ?? []);

function networkSnapshot(
  { name, bridge, mtu, bridgeMtu, isolated, vlanFiltering, subnets }: NetworkDefinition,
  spec: PodSpec,
  world: NetworksWorld,
): NetworkSnapshot {
  const wanted = spec.interfaces.filter((each) => networkAsked(each) === name);
  const asked = wanted.flatMap(({ addresses = [] }) => addresses.map(bareIp));
  const subnetSnapshot = ({ cidr, gateway }: SubnetDefinition): SubnetSnapshot => {
    // As many more as are asked for by address, since the automatic choice may have to skip all of
    // these.
    const nextFree = world.addresses.nextFree(name, cidr, wanted.length + asked.length);
    return {
      cidr,
      gateway,
      nextFree,
      fresh: nextFree.filter((ip) => world.addresses.isFresh(name, ip)),
      asked: Object.fromEntries(
        asked
          .filter((ip) => contains(cidr, ip))
          .map((ip) => [ip, named(world.addresses.status(name, ip), world.db)]),
      ),
    };
  };
  return {
    name,
    bridge,
    subnets: subnets.map(subnetSnapshot),
    mtu,
    ...(bridgeMtu === undefined ? {} : { bridgeMtu }),
    isolated,
    vlanFiltering,
    ports: countInterfaces(world.db, name),
  };
}

/** A holder as people know it: pods by their name, containers by their id. */
export function named(status: AddressStatus, db: Database): AddressStatus {
  if (status.kind !== "held") return status;
  const attachmentId = /^attachment ([a-z2-7]{12})$/.exec(status.by)?.[1];
  const container =
    attachmentId === undefined ? undefined : containerOf(db, attachmentId as AttachmentId);
  if (container !== undefined) return { kind: "held", by: `container "${container}"` };
  const podId = /^pod ([a-z2-7]{12})\//.exec(status.by)?.[1];
  const pod = podId === undefined ? undefined : podNameById(db, podId as PodId);
  return pod === undefined ? status : { kind: "held", by: `pod "${pod}"` };
}

/**
 * Name servers for a guest whose spec names none: the gateways of its networks that answer names,
 * and the servers of networks that do not, in the order of its interfaces; else the host's. The
 * last argument holds the servers that the guest has already.
 */
export function dnsSnapshot(
  spec: Pick<PodSpec, "interfaces">,
  networks: KnownNetworks,
  sent: readonly Ip[] = [],
): Snapshot["dns"] {
  const all = networks.list();
  const its = spec.interfaces.flatMap((each) => {
    const network = all.find(({ name }) => name === networkAsked(each));
    return network ? { network, domain: networks.domainOf(network.name, sent), asked: each } : [];
  });
  const unique = <T>(values: readonly T[]): T[] => [...new Set(values)];
  const servers = unique(
    its.flatMap(({ network, domain, asked }) =>
      domain === undefined ? network.dns : gatewaysFor(network, asked),
    ),
  );
  const domains = unique(its.flatMap(({ domain }) => domain ?? []));
  const named = unique(its.flatMap(({ network }) => network.dnsSearch));
  if (servers.length > 0 && (domains.length === 0 || named.length > 0))
    return { servers, search: [...domains, ...named].slice(0, mostSearched), options: [], domains };
  const host = readHostDns();
  const search = named.length > 0 ? named : host.search;
  if (servers.length === 0) return { ...host, search, domains: [] };
  return { servers, search: [...domains, ...search].slice(0, mostSearched), options: [], domains };
}

/**
 * The plan with the name servers that a new pod would get on its networks; the plan itself where
 * they are its servers already. A plain hyperstart gets its servers once, at its start. Takes
 * nothing.
 */
export function followServers({ plan, spec }: PodContents, networks: KnownNetworks): PodPlan {
  if (!guestOf(plan).followsServers) return plan;
  const interfaces = requestsOf(stayingOf({ plan, spec }));
  const dns = planServers(spec, dnsSnapshot({ interfaces }, networks, plan.dns?.servers));
  return sameServers(dns, plan.dns) ? plan : { ...plan, dns };
}

/** resolv.conf(5): more were not looked at before glibc 2.26. */
const mostSearched = 6;

/** The gateways an interface reaches: of the families that it has addresses of. */
function gatewaysFor({ subnets }: NetworkDefinition, { addresses }: InterfaceSpec): Ip[] {
  const families = new Set<Family>(addresses?.map((each) => familyOf(bareIp(each))));
  return subnets
    .map(({ gateway }) => ipOf(gateway))
    .filter((gateway) => addresses === undefined || families.has(familyOf(gateway)));
}
