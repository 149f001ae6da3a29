import { type Cidr, contains, familyOf, type Ip, ipOf, isIp, parseIp } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { type NetworkName, type PodId, printable } from "../../core/names.ts";
import type { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import type { HostObservations } from "../../network/bridge/observations.ts";
import type { FragmentKey } from "../../network/model/desired.ts";
import { canonicalName, type DomainName } from "../../policy/domain.ts";
import type { Config } from "../config/config.ts";
import { containerText } from "../containers/attachment-plan.ts";
import { listAttachments } from "../containers/store.ts";
import type { Addresses } from "../ipam/addresses.ts";
import type { Networks } from "../networks/networks.ts";
import type { HostRecords } from "../overlays/records/host-records.ts";
import type { OverlayControl } from "../overlays/view.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { staying } from "../pods/store/pod-plan.ts";
import type { PodRecords } from "../pods/store/records.ts";
import type { Policies } from "../policies/policies.ts";
import type { PublishedPlan } from "../published/published-plan.ts";
import type { Database } from "../store/database.ts";
import { guestRoute } from "./guest-route.ts";
import type { Sender } from "./sender.ts";
import type { HostRoute, Peer, Published, RemoteHost, ServedAddress, TraceFacts } from "./facts.ts";
import type { Services } from "../services/services.ts";

export interface TraceParts {
  readonly config: Pick<Config, "disableIptables" | "relayPort">;
  readonly db: Database;
  readonly records: Pick<PodRecords, "find" | "get" | "list">;
  readonly addresses: Pick<Addresses, "holderAt">;
  readonly networks: Pick<Networks, "list">;
  readonly policies: Pick<Policies, "decide" | "decisionsOf">;
  readonly network: {
    readonly observe: Pick<
      HostObservations,
      "bridgedPass" | "guardLacking" | "namesOf" | "traceFlow"
    >;
  };
  readonly services: Pick<Services, "list" | "desired">;
  readonly netlink: Pick<Rtnetlink, "routesTo">;
  readonly overlays?: Pick<OverlayControl, "list" | "nodes">;
  readonly hostRecords?: { readonly remote: Pick<HostRecords["remote"], "nameAt"> };
  readonly resolvers: { readonly domain: string };
}

/** What a packet is sent to: an address, or a name that other servers answer. */
interface Destination {
  readonly ip?: Ip;
  readonly name?: DomainName;
}

/**
 * The destination that a text names: an address, the name of a pod (`web`, `web.NETWORK.DOMAIN`),
 * or another name. A pod's address on a network of the sender comes first. Throws
 * `INVALID_ARGUMENT`, `POD_NOT_FOUND`.
 */
export function destinationOf(
  text: string,
  sender: Sender,
  {
    records,
    services,
    resolvers: { domain },
  }: Pick<TraceParts, "records" | "resolvers" | "services">,
): Destination {
  if (isIp(text)) return { ip: parseIp(text) };
  const name = canonicalName(text);
  if (name === undefined) throw noDestination(text);
  const inside = name.endsWith(`.${domain}`) ? name.slice(0, -domain.length - 1) : undefined;
  if (inside === undefined && name.includes(".")) return { name };
  const [pod = "", ...network] = (inside ?? name).split(".");
  const own = new Set(sender.interfaces.map((each) => each.network));
  if (network.join(".") === "service") {
    const named = services.list().find((each) => each.name === pod && own.has(each.network));
    const [address] = named?.addresses ?? [];
    if (address !== undefined) return { ip: address };
  }
  const theirs = staying(records.find(pod).plan.interfaces)
    .filter((each) => network.length === 0 || each.network === network.join("."))
    .toSorted((a, b) => Number(own.has(b.network)) - Number(own.has(a.network)));
  const [first] = theirs.flatMap(({ addresses }) => addresses);
  if (first === undefined) throw noDestination(text);
  return { ip: ipOf(first) };
}

const noDestination = (text: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", `"${printable(text)}" is no address or name`, {
    field: "destination",
    hint: "Give an address, the name of a pod, or a name on the internet",
  });

/** Gathers the facts about a packet that goes to this address, or to a name. */
export async function gatherTrace(
  parts: TraceParts,
  sender: Sender,
  ip: Ip | undefined,
): Promise<TraceFacts> {
  const { config, networks, network, policies } = parts;
  const bridge = guestRoute(sender, ip)?.from.bridge;
  return {
    networks: networks.list(),
    firewall: !config.disableIptables,
    guardLacking: network.observe.guardLacking,
    hostRoute: ip === undefined ? undefined : await hostRoute(parts, ip),
    bridgedPass:
      bridge !== undefined &&
      ip !== undefined &&
      (await network.observe.bridgedPass(bridge, familyOf(ip))),
    peerAt: (name, address) => peerAt(parts, name, address),
    publishedAt: (protocol, address, port) => publishedAt(parts, protocol, address, port),
    decide: (owner, direction, flow) => policies.decide(owner, direction, flow),
    serviceAt: (name, address) => serviceAt(parts, name, address),
    elsewhere: (address) => elsewhere(parts, address),
  };
}

async function hostRoute(
  { netlink, network }: Pick<TraceParts, "netlink" | "network">,
  ip: Ip,
): Promise<HostRoute | undefined> {
  const [route] = await netlink.routesTo([ip]);
  if (route === undefined || (route.type !== "local" && route.type !== "unicast")) return undefined;
  const { type, link, gateway } = route;
  const [name = ""] = link === undefined ? [] : await network.observe.namesOf([link]);
  return { local: type === "local", link: name, ...(gateway === undefined ? {} : { gateway }) };
}

/** The pod or container that has an address of any network. */
export function ownerAt(
  { addresses, networks, records }: Pick<TraceParts, "addresses" | "networks" | "records">,
  ip: Ip,
): FragmentKey | undefined {
  const at = networks.list().find(({ subnets }) => subnets.some(({ cidr }) => holds(cidr, ip)));
  const id = at === undefined ? undefined : addresses.holderAt(at.name, ip);
  if (id === undefined) return undefined;
  return { kind: records.get(id as PodId) === undefined ? "attachment" : "pod", key: id };
}

const holds = (cidr: Cidr, ip: Ip): boolean =>
  familyOf(cidr) === familyOf(ip) && contains(cidr, ip);

function peerAt(
  { addresses, records, networks, db }: TraceParts,
  name: NetworkName,
  ip: Ip,
): Peer | undefined {
  const id = addresses.holderAt(name, ip);
  if (id === undefined) return undefined;
  const network = networks.list().find((each) => each.name === name);
  const row = records.get(id as PodId);
  if (row !== undefined) return podPeer(row, ip, network?.isolated ?? false);
  const found = listAttachments(db).find((each) => each.id === id);
  if (found === undefined) return undefined;
  return {
    text: containerText(found.plan),
    owner: { kind: "attachment", key: found.id },
    isolated: network?.isolated ?? false,
    ...(found.state === "ready" ? {} : { absence: found.state }),
  };
}

function podPeer({ id, name, state, plan }: PodRow, ip: Ip, networkIsolated: boolean): Peer {
  const at = staying(plan.interfaces).find(({ addresses }) => addresses.map(ipOf).includes(ip));
  return {
    text: `pod ${name}`,
    owner: { kind: "pod", key: id },
    isolated: at?.port?.isolated ?? networkIsolated,
    ...(state === "running" ? {} : { absence: state }),
  };
}

/** Who publishes a port of the host at an address. */
function publishedAt(
  { records, db }: Pick<TraceParts, "records" | "db">,
  protocol: string,
  ip: Ip,
  port: number,
): Published | undefined {
  const all: (readonly [text: string, published: readonly PublishedPlan[] | undefined])[] = [
    ...records
      .list()
      .filter(({ state }) => state === "running" || state === "paused")
      .map(({ name, plan }) => [`pod ${name}`, plan.published] as const),
    ...listAttachments(db)
      .filter(({ state }) => state === "ready")
      .map(({ plan }) => [containerText(plan), plan.published] as const),
  ];
  for (const [text, published = []] of all)
    for (const { protocol: own, hostPort, podPort, count, at } of published) {
      if (own !== protocol || port < hostPort || port >= hostPort + count) continue;
      const to = at.find(({ hostIp }) => hostIp === ip || isEvery(hostIp, ip));
      if (to !== undefined) return { text, podIp: to.podIp, podPort: podPort + port - hostPort };
    }
  return undefined;
}

/** Whether the first stands for every address of the second's family. */
const isEvery = (hostIp: Ip, ip: Ip): boolean => hostIp === (familyOf(ip) === 4 ? "0.0.0.0" : "::");

/** The service of a network with an address, as its rules are to be. */
function serviceAt(
  { services }: Pick<TraceParts, "services">,
  network: NetworkName,
  ip: Ip,
): ServedAddress | undefined {
  const found = services
    .desired()
    .find((each) => each.network === network && each.addresses.includes(ip));
  if (found === undefined) return undefined;
  const { endpoints = [], notices = [] } =
    services.list().find(({ name }) => name === found.name) ?? {};
  const who = new Map(
    endpoints.map(({ address, pod, container, host }) => {
      const shown = pod === undefined ? container : `pod ${pod}`;
      return [address, [shown ?? "", host && `on ${host.name}`].filter(Boolean).join(" ")];
    }),
  );
  return {
    name: found.name,
    sticky: found.sticky === true,
    notices,
    ports: found.ports.map(({ protocol, port, backends }) => ({
      protocol,
      port,
      backends: backends
        .filter(({ address, weight }) => weight > 0 && familyOf(address) === familyOf(ip))
        .map((each) => ({ ...each, ip: each.address, text: who.get(each.address) ?? "" })),
    })),
  };
}

/** The host of an overlay that has an address. */
function elsewhere({ overlays, hostRecords }: TraceParts, ip: Ip): RemoteHost | undefined {
  for (const { name, network, backend } of overlays?.list() ?? []) {
    const node = overlays
      ?.nodes(name)
      .find(({ self, subnets }) => !self && subnets.some((cidr) => holds(cidr, ip)));
    if (node === undefined) continue;
    const pod = hostRecords?.remote.nameAt(name, ip);
    return {
      overlay: network,
      backend,
      publicIp: node.publicIps.join(" "),
      silent: node.reachable === false,
      ...(pod === undefined ? {} : { pod }),
    };
  }
  return undefined;
}
