import { ipOf } from "../../core/address.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import type { PortVlan } from "../../linux/rtnetlink/links/bridge-vlan.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import {
  hasFamily,
  type NetworkFragment,
  type PluggedFragment,
  type PortDesired,
} from "../model/desired.ts";
import { observeQueues, observeRates } from "../rates/observe-rates.ts";
import { bridgeSettings, ipForwardKey, ipv6ForwardKey } from "./diff-network.ts";
import type { HostKernel, HostNetlink, HostSysctl } from "../kernel/kernel.ts";
import type { Memory } from "../kernel/memory.ts";
import { parseOwner } from "../model/ownership.ts";
import type {
  LinksOwner,
  NamedLink,
  ObservedLink,
  ObservedNetwork,
  ObservedPod,
  ObservedRouter,
} from "../model/observed.ts";

const observedLink = (link: Link): ObservedLink => ({
  index: link.index,
  // A foreign link's name need not be one of ours; it is only ever shown and compared.
  name: link.name as IfName,
  kind: link.kind,
  alias: link.alias,
  group: link.group,
  mtu: link.mtu,
  up: link.up,
  mac: link.mac,
  master: link.master ?? 0,
  vlanFiltering: link.bridge?.vlanFiltering,
  fdbMaxLearned: link.bridge?.fdbMaxLearned,
  noLinkLocalLearn: link.bridge?.noLinkLocalLearn,
  nfCall:
    link.bridge && link.bridge.nfCallIptables === true && link.bridge.nfCallIp6tables === true,
  isolated: link.port?.isolated,
  hairpin: link.port?.hairpin,
  learning: link.port?.learning,
  queue: link.queue,
});

/** All links of the host. */
export async function observeLinks(netlink: HostNetlink): Promise<ObservedLink[]> {
  return (await netlink.links()).map(observedLink);
}

export async function observeLink(
  netlink: HostNetlink,
  name: IfName,
): Promise<ObservedLink | undefined> {
  const link = await netlink.link(name);
  return link === undefined ? undefined : observedLink(link);
}

/** See `HostObservations.withLinks`. */
export async function observeRemains(
  netlink: HostNetlink,
  owners: readonly LinksOwner[],
): Promise<ReadonlySet<string>> {
  const marked = new Set<string>();
  const unmarked = new Set<string>();
  for (const { name, alias } of await netlink.links()) {
    const owner = parseOwner(alias);
    if (owner !== undefined) marked.add(`${owner.kind} ${owner.key}`);
    else if (alias === undefined) unmarked.add(name);
  }
  const hasLink = ({ kind, key, names }: LinksOwner): boolean =>
    marked.has(`${kind} ${key}`) || names.some((name) => unmarked.has(name));
  return new Set(owners.filter(hasLink).map(({ key }) => key));
}

/** A link that a request names; undefined if there is none. */
export async function observeNamed(
  netlink: HostNetlink,
  name: IfName,
): Promise<NamedLink | undefined> {
  const link = await netlink.link(name);
  if (link === undefined) return undefined;
  const { kind, tun, bridge, mtu, carrier } = link;
  return {
    name,
    kind: kind === "bridge" ? "bridge" : tun?.type === "tap" ? "tap" : "other",
    ours: parseOwner(link.alias) !== undefined,
    mtu,
    carrier,
    vlanFiltering: bridge?.vlanFiltering,
    persistent: tun?.persistent,
    multiQueue: tun?.multiQueue,
  };
}

/** The host's end of a bridge; undefined if there is no such link. */
export async function observeRouter(
  netlink: HostNetlink,
  bridge: IfName,
): Promise<ObservedRouter | undefined> {
  const link = await netlink.link(bridge);
  if (link?.mac === undefined) return undefined;
  const addresses = await netlink.addresses({ index: link.index, family: 6 });
  const own = addresses.find(
    ({ prefix, tentative, dadFailed }) => prefix.startsWith("fe80:") && !tentative && !dadFailed,
  );
  return { mac: link.mac, ...(own === undefined ? {} : { linkLocal: ipOf(own.prefix) }) };
}

/** How many ports a bridge has. */
export async function observePorts(netlink: HostNetlink, bridgeIndex: number): Promise<number> {
  return (await netlink.links({ master: bridgeIndex })).length;
}

export async function observeNetwork(
  { netlink, sysctl, memory }: HostKernel & { readonly memory: Memory },
  fragment: NetworkFragment,
): Promise<ObservedNetwork> {
  const found = await netlink.links();
  const links = found.map(observedLink);
  const bridge = links.find((link) => link.name === fragment.bridge);
  const addresses = await netlink.addresses();
  const bridges = found.flatMap((link) => link.bridge ?? []);
  return {
    bridge,
    addresses: addresses.map(({ index, prefix }) => ({ link: index, prefix })),
    linkNames: new Map(links.map((link) => [link.index, link.name])),
    ipForward: sysctl.read(ipForwardKey),
    ipv6Forward: hasFamily(fragment, 6) ? readOptional(sysctl, ipv6ForwardKey) : undefined,
    settings: new Map(
      bridgeSettings(fragment).map(({ key }) => [
        key,
        bridge === undefined ? undefined : readOptional(sysctl, key),
      ]),
    ),
    canFilterVlans:
      bridges.length === 0
        ? undefined
        : bridges.some(({ vlanProtocol }) => vlanProtocol !== undefined),
    pinned: bridge !== undefined && memory.hasPinned(bridge.index),
  };
}

/** Reads only the links that the fragment names: the cost does not grow with the host. */
export async function observePod(
  netlink: HostNetlink,
  fragment: PluggedFragment,
): Promise<ObservedPod> {
  const links = await observeNames(netlink, fragment.ports.flatMap(linksOf));
  for (const port of fragment.ports) {
    const link = links.get(port.tap);
    if (link === undefined) continue;
    const seen = { ...link, ...(await observeLimits(netlink, port, link, links)) };
    const { tap, vlan } = port;
    links.set(
      tap,
      vlan === undefined || link.master === 0
        ? seen
        : { ...seen, vlan: onlyVlan(await netlink.portVlans(link.index)) },
    );
  }
  return links;
}

/** Links by their names, with one exchange; those that there are. */
export async function observeNames(
  netlink: HostNetlink,
  asked: readonly IfName[],
): Promise<Map<IfName, ObservedLink>> {
  const links = new Map<IfName, ObservedLink>();
  const names = [...new Set(asked)];
  const found = await netlink.linksNamed(names);
  names.forEach((name, i) => {
    const link = found[i];
    if (link !== undefined) links.set(name, observedLink(link));
  });
  return links;
}

const linksOf = ({ tap, bridge, ifb }: PortDesired): IfName[] =>
  ifb === undefined ? [tap, bridge] : [tap, bridge, ifb];

/** The queues of a port and of its ifb; not looked at where neither has nor needs any. */
async function observeLimits(
  netlink: HostNetlink,
  { ifb: name, rates }: PortDesired,
  tap: ObservedLink,
  links: Map<IfName, ObservedLink>,
): Promise<Pick<ObservedLink, "queues">> {
  const ifb = name === undefined ? undefined : links.get(name);
  if (name !== undefined && ifb !== undefined)
    links.set(name, { ...ifb, queues: await observeQueues(netlink, ifb.index) });
  if (rates === undefined && ifb === undefined && tap.queue !== "tbf") return {};
  return { queues: await observeRates(netlink, tap.index) };
}

/** The VLAN of a port that is an untagged member of it alone. */
function onlyVlan(vlans: readonly PortVlan[]): number | undefined {
  const [first, second] = vlans;
  if (first === undefined || second !== undefined || first.last !== first.vlan) return undefined;
  return first.pvid && first.untagged ? first.vlan : undefined;
}

/** A kernel setting that some kernels lack. */
export function readOptional(sysctl: HostSysctl, key: string): string | undefined {
  try {
    return sysctl.read(key);
  } catch (error) {
    if (isPodnetError(error) && error.details["errno"] === "ENOENT") return undefined;
    throw error;
  }
}

/** Sets a key that a kernel without IPv6 lacks. */
export function writeOptional(sysctl: HostSysctl, key: string, value: string): void {
  try {
    sysctl.write(key, value);
  } catch (error) {
    if (!isPodnetError(error) || error.details["errno"] !== "ENOENT") throw error;
  }
}

/** A link that has to be there. Throws `NETLINK_FAILED`. */
export async function requireLink(netlink: Pick<HostNetlink, "link">, name: IfName): Promise<Link> {
  const link = await netlink.link(name);
  if (link !== undefined) return link;
  throw hasGone(name);
}

/** Two links with one exchange. */
export async function requireLinks(
  netlink: Pick<HostNetlink, "linksNamed">,
  first: IfName,
  second: IfName,
): Promise<readonly [Link, Link]> {
  const [one, other] = await netlink.linksNamed([first, second]);
  if (one === undefined) throw hasGone(first);
  if (other === undefined) throw hasGone(second);
  return [one, other];
}

const hasGone = (name: IfName): PodnetError =>
  new PodnetError("NETLINK_FAILED", `Link "${name}" has gone`, {
    hint: "It was removed meanwhile; try again",
    details: { link: name, errno: "ENODEV" },
  });
