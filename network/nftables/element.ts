import { type Family, familyOf, type Ip, networkOf } from "../../core/address.ts";
import type { NetworkFragment, PluggedFragment, PublishedDesired } from "../desired.ts";
import type { OverlayRuled } from "../overlay/desired.ts";
import { outermost } from "../overlay/traffic.ts";
import { networkMark, overlayMark, publishedMark } from "../ownership.ts";

/**
 * The sets and maps of our table. What of them is a network's is in few elements; what is a pod's is in those that are
 * hashed, so that neither a packet nor a change takes longer when there are many.
 */
export const sets = {
  /** Bridges of networks: what is sent there is judged. */
  bridges: { type: "ifname" },
  /** A bridge and itself, where its pods may talk: their frames pass here with bridge-nf-call-iptables=1. */
  within: { type: "ifname . ifname" },
  /** Subnets and the bridges they come from: whose addresses are hidden when they leave their network. */
  masqueraded4: { type: "ipv4_addr . ifname", interval: true },
  masqueraded6: { type: "ipv6_addr . ifname", interval: true },
  /** Subnets and their bridges: who asks from there for a port published there is answered by way of the host. */
  own4: { type: "ipv4_addr . ifname", interval: true },
  own6: { type: "ipv6_addr . ifname", interval: true },
  /** Published at one address of the host, and at all of them. */
  published4: {
    type: "inet_proto . ipv4_addr . inet_service",
    value: "ipv4_addr . inet_service",
  },
  published6: {
    type: "inet_proto . ipv6_addr . inet_service",
    value: "ipv6_addr . inet_service",
  },
  everywhere4: { type: "inet_proto . inet_service", value: "ipv4_addr . inet_service" },
  everywhere6: { type: "inet_proto . inet_service", value: "ipv6_addr . inet_service" },
  /** Ports of pods that are let in, if translated. */
  opened4: { type: "inet_proto . ipv4_addr . inet_service" },
  opened6: { type: "inet_proto . ipv6_addr . inet_service" },
  /** The same of single pods, which are on bridges of others. */
  hairpin4: { type: "ipv4_addr . ifname . ipv4_addr", interval: true },
  hairpin6: { type: "ipv6_addr . ifname . ipv6_addr", interval: true },
  /** This host's parts of overlays. */
  lease4: { type: "ipv4_addr", interval: true },
  lease6: { type: "ipv6_addr", interval: true },
  /** Overlays and this host's parts of them: who may reach pods here from another host. */
  admitted4: { type: "ipv4_addr . ipv4_addr", interval: true },
  admitted6: { type: "ipv6_addr . ipv6_addr", interval: true },
  /** The same the other way round: from here, addresses are not hidden in the overlay. */
  inside4: { type: "ipv4_addr . ipv4_addr", interval: true },
  inside6: { type: "ipv6_addr . ipv6_addr", interval: true },
  /** Overlays and who outside of them sees pods' own addresses; and those by whom theirs are not hidden from pods. */
  shown4: { type: "ipv4_addr . ipv4_addr", interval: true },
  shown6: { type: "ipv6_addr . ipv6_addr", interval: true },
  trusted4: { type: "ipv4_addr . ipv4_addr", interval: true },
  trusted6: { type: "ipv6_addr . ipv6_addr", interval: true },
  /** Overlays whose addresses are hidden outside, and outside addresses in them: by random ports, or by any. */
  randomly4: { type: "ipv4_addr", interval: true },
  randomly6: { type: "ipv6_addr", interval: true },
  plainly4: { type: "ipv4_addr", interval: true },
  plainly6: { type: "ipv6_addr", interval: true },
} as const satisfies Readonly<Record<string, SetKind>>;

export interface SetKind {
  readonly type: string;
  /** What a map gives for it. */
  readonly value?: string;
  readonly interval?: true;
}

export type SetName = keyof typeof sets;
export const setNames = Object.keys(sets) as SetName[];
export const kindOf = (set: SetName): SetKind => sets[set];

/** One element of a set or map, its words as nft writes them. */
export interface Element {
  readonly set: SetName;
  readonly key: string;
  readonly value?: string;
  /** The mark of whom it belongs to; undefined for one that somebody else put there. */
  readonly owner: string | undefined;
}

/** Names an element whatever it says. */
export const elementId = ({ set, key }: Pick<Element, "set" | "key">): string => `${set} ${key}`;

/** A network's elements. Pure. */
export function networkElements(network: NetworkFragment): Element[] {
  if (!network.firewall) return [];
  const owner = networkMark(network.key);
  const bridge = quoted(network.bridge);
  return [
    { set: "bridges", key: bridge, owner },
    ...(network.isolated === true
      ? []
      : [{ set: "within", key: `${bridge} . ${bridge}`, owner } as const]),
    ...network.masquerade.map(
      (subnet): Element => ({
        set: `masqueraded${familyOf(subnet)}`,
        key: `${subnet} . ${bridge}`,
        owner,
      }),
    ),
    ...[...new Set([...network.gateways.map(networkOf), ...network.masquerade])].map(
      (subnet): Element => ({
        set: `own${familyOf(subnet)}`,
        key: `${subnet} . ${bridge}`,
        owner,
      }),
    ),
  ];
}

/** An overlay's elements. Pure. */
export function overlayElements(overlay: OverlayRuled): Element[] {
  const owner = overlayMark(overlay.name);
  const { masquerade } = overlay;
  return overlay.sides.flatMap(({ network, subnet }): Element[] => {
    const family = familyOf(network);
    const except = outermost(masquerade?.except ?? []).filter((cidr) => familyOf(cidr) === family);
    const hidden: Element[] =
      masquerade === undefined
        ? []
        : [
            { set: `inside${family}`, key: `${subnet} . ${network}`, owner },
            ...except.flatMap((cidr): Element[] => [
              { set: `shown${family}`, key: `${network} . ${cidr}`, owner },
              { set: `trusted${family}`, key: `${cidr} . ${network}`, owner },
            ]),
            {
              set: `${masquerade.randomFully ? "randomly" : "plainly"}${family}`,
              key: network,
              owner,
            },
          ];
    return [
      { set: `lease${family}`, key: subnet, owner },
      { set: `admitted${family}`, key: `${network} . ${subnet}`, owner },
      ...hidden,
    ];
  });
}

/** The elements by which what a pod has published is reached. Pure. */
export function podElements(pod: PluggedFragment): Element[] {
  const owner = publishedMark(pod);
  const foreign = new Set(
    pod.ports.flatMap((port) => (port.foreign === true ? [port.bridge] : [])),
  );
  const elements = (pod.published ?? []).flatMap((published) => [
    ...(foreign.has(published.bridge) ? [hairpin(published, owner)] : []),
    ...publishedElements(published, owner),
  ]);
  // What several host ports have in common is said once.
  return [...new Map(elements.map((element) => [elementId(element), element])).values()];
}

/** Numbers, for names would be looked up in /etc/protocols. */
const protocols = { tcp: 6, udp: 17, sctp: 132 } as const;

const numbers = Object.entries(protocols).map(([name, number]) => [`${number} . `, name] as const);

/** For people: with protocols by their names, as nft itself tells of them. */
export function named(element: Element): Element {
  const begins = kindOf(element.set).type.startsWith("inet_proto");
  const by = begins ? numbers.find(([number]) => element.key.startsWith(number)) : undefined;
  if (by === undefined) return element;
  const [number, name] = by;
  return { ...element, key: `${name} . ${element.key.slice(number.length)}` };
}

/**
 * Ranges are one element a port: maps of intervals would have libnftables read the whole map before each change, and
 * cannot shift a range.
 */
function publishedElements(published: PublishedDesired, owner: string): Element[] {
  const { hostIp, hostPort, podIp, podPort, count } = published;
  const family = familyOf(podIp);
  const protocol = protocols[published.protocol];
  const elements: Element[] = [];
  for (let i = 0; i < count; i++) {
    const opened = `${podIp} . ${podPort + i}`;
    elements.push(translation(family, protocol, hostIp, hostPort + i, opened, owner), {
      set: `opened${family}`,
      key: `${protocol} . ${opened}`,
      owner,
    });
  }
  return elements;
}

const hairpin = ({ subnet, bridge, podIp }: PublishedDesired, owner: string): Element => ({
  set: `hairpin${familyOf(podIp)}`,
  key: `${subnet} . ${quoted(bridge)} . ${podIp}`,
  owner,
});

function translation(
  family: Family,
  protocol: number,
  hostIp: Ip | undefined,
  port: number,
  value: string,
  owner: string,
): Element {
  return hostIp === undefined
    ? { set: `everywhere${family}`, key: `${protocol} . ${port}`, value, owner }
    : { set: `published${family}`, key: `${protocol} . ${hostIp} . ${port}`, value, owner };
}

/** Names of links have no character that would have to be escaped (`parseIfName`). */
const quoted = (link: string): string => `"${link}"`;
