import { type Cidr, type Family, familyOf, type Ip, networkOf } from "../../../core/address.ts";
import {
  hasFamily,
  type NetworkFragment,
  type PluggedFragment,
  portGroup,
  type PublishedDesired,
  redirectedTo,
} from "../../model/desired.ts";
import type { OverlayRuled } from "../../model/overlay.ts";
import { outermost } from "../traffic.ts";
import { networkMark, overlayMark, publishedMark } from "../../model/ownership.ts";

/**
 * The sets and maps of our table. What of them is a network's is in few elements; what is a pod's is in those that are
 * hashed, so that neither a packet nor a change takes longer when there are many.
 */
export const sets = {
  /** Bridges of networks: what is sent there is judged. */
  bridges: { type: "ifname" },
  /** A bridge and itself, where its pods may talk: their frames pass here with bridge-nf-call-iptables=1. */
  within: { type: "ifname . ifname" },
  /** A bridge and itself, where its pods may not. */
  apart: { type: "ifname . ifname" },
  /** Bridges of networks that are reached by whatever somebody on this host has translated. */
  translating: { type: "ifname" },
  /** Addresses of which the same is true. */
  translated4: { type: "ipv4_addr" },
  translated6: { type: "ipv6_addr" },
  /** Sources, and bridges of networks that they reach. */
  admitting4: { type: "ipv4_addr . ifname", interval: true },
  admitting6: { type: "ipv6_addr . ifname", interval: true },
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
  /** Loopback ports of this host that lead to podnetd's. */
  loopback4: { type: "inet_proto . ipv4_addr . inet_service", value: "ipv4_addr . inet_service" },
  loopback6: { type: "inet_proto . ipv6_addr . inet_service", value: "ipv6_addr . inet_service" },
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

/**
 * The sets of the guard's tables, whose names are none of the above. A few elements a network: who a frame is from is
 * told by the link group of the port that it came in by (`portGroup`). Of pods there are those alone that have addresses
 * on their `lo`.
 */
export const bridgeGuardSets = {
  /** Groups of networks that have rules: of their guests the sources are looked at. */
  guarded: { type: "devgroup" },
  /** Those of them that have no IPv6. */
  without6: { type: "devgroup" },
  /** What their guests may call themselves towards the host. */
  sources4: { type: "devgroup . ipv4_addr", interval: true },
  sources6: { type: "devgroup . ipv6_addr", interval: true },
  /** Ports, and addresses beyond their network's that podnet gave the guest. By port: several guests may have one address. */
  given4: { type: "ifname . ipv4_addr" },
  given6: { type: "ifname . ipv6_addr" },
} as const satisfies Readonly<Record<string, SetKind>>;

export const hostGuardSets = {
  /** Bridges of networks: what goes there stays on this host. */
  within_host: { type: "ifname" },
  /** Those from which the clouds' metadata are not reached. */
  no_metadata: { type: "ifname" },
} as const satisfies Readonly<Record<string, SetKind>>;

/** Of the table of hosts that may send by their own addresses (`senders-table.ts`), which has `lease4` and `lease6` as well. */
export const senderSets = {
  /** Public addresses of other hosts and the part of an overlay here that they may send to. */
  hosts4: { type: "ipv4_addr . ipv4_addr", interval: true },
  hosts6: { type: "ipv6_addr . ipv6_addr", interval: true },
} as const satisfies Readonly<Record<string, SetKind>>;

const everySet = { ...sets, ...bridgeGuardSets, ...hostGuardSets, ...senderSets };

export type SetName = keyof typeof everySet;
export const setNames = Object.keys(sets) as (keyof typeof sets)[];
export const kindOf = (set: SetName): SetKind => everySet[set];
export const isSetName = (name: string): name is SetName => Object.hasOwn(everySet, name);

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

/** Whose addresses its guests have. */
const subnetsOf = ({ gateways, masquerade }: NetworkFragment): Cidr[] => [
  ...new Set([...gateways.map(networkOf), ...masquerade]),
];

/** A network's elements. Pure. */
export function networkElements(network: NetworkFragment): Element[] {
  if (!network.firewall) return [];
  const owner = networkMark(network.key);
  const bridge = quoted(network.bridge);
  return [
    { set: "bridges", key: bridge, owner },
    { set: network.isolated === true ? "apart" : "within", key: `${bridge} . ${bridge}`, owner },
    ...(network.acceptTranslated === true
      ? [{ set: "translating", key: bridge, owner } as const]
      : []),
    ...outermost(network.admit ?? []).map(
      (cidr): Element => ({ set: `admitting${familyOf(cidr)}`, key: `${cidr} . ${bridge}`, owner }),
    ),
    ...network.masquerade.map(
      (subnet): Element => ({
        set: `masqueraded${familyOf(subnet)}`,
        key: `${subnet} . ${bridge}`,
        owner,
      }),
    ),
    ...subnetsOf(network).map(
      (subnet): Element => ({
        set: `own${familyOf(subnet)}`,
        key: `${subnet} . ${bridge}`,
        owner,
      }),
    ),
  ];
}

/** A network's elements of the guard at its bridge's ports. Pure. */
export function bridgeGuardElements(network: NetworkFragment): Element[] {
  const owner = networkMark(network.key);
  const group = `${portGroup(network.bridge)}`;
  const source = (from: string): Element => {
    const set = from.includes(":") ? "sources6" : "sources4";
    return { set, key: `${group} . ${from}`, owner };
  };
  const has6 = hasFamily(network, 6);
  return [
    { set: "guarded", key: group, owner },
    ...(has6 ? [] : [{ set: "without6", key: group, owner } as const]),
    ...subnetsOf(network).map(source),
    // Neighbours are asked for by link-local addresses, and by none while one's own are looked for.
    ...(has6 ? ["fe80::/10", "::"].map(source) : []),
  ];
}

/** A pod's elements of the guard at its bridges' ports: none but for addresses beyond its networks'. Pure. */
export function givenElements(pod: PluggedFragment): Element[] {
  const owner = publishedMark(pod);
  return (pod.sources ?? []).map(({ tap, address }) => ({
    set: `given${familyOf(address)}`,
    key: `${quoted(tap)} . ${address}`,
    owner,
  }));
}

/** A network's elements of the guard between guests and the host's outside. Pure. */
export function hostGuardElements({ key, bridge, cloudMetadata }: NetworkFragment): Element[] {
  const element = { key: quoted(bridge), owner: networkMark(key) };
  return [
    { set: "within_host", ...element },
    ...(cloudMetadata === true ? [] : [{ set: "no_metadata", ...element } as const]),
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

/** The elements by which what a pod has published is reached, and by which it takes what others translate. Pure. */
export function podElements(pod: PluggedFragment): Element[] {
  const owner = publishedMark(pod);
  const foreign = new Set(
    pod.ports.flatMap((port) => (port.foreign === true ? [port.bridge] : [])),
  );
  const elements = (pod.published ?? []).flatMap((published) => [
    ...(foreign.has(published.bridge) ? [hairpin(published, owner)] : []),
    ...publishedElements(published, owner),
  ]);
  const taking = (pod.translated ?? []).map(
    (ip): Element => ({ set: `translated${familyOf(ip)}`, key: ip, owner }),
  );
  const redirected = (pod.loopback ?? []).map(
    ({ protocol, hostIp, hostPort, toPort }): Element => ({
      set: `loopback${familyOf(hostIp)}`,
      key: `${protocols[protocol]} . ${hostIp} . ${hostPort}`,
      value: `${redirectedTo[familyOf(hostIp)]} . ${toPort}`,
      owner,
    }),
  );
  const all = [...elements, ...taking, ...redirected];
  // What several host ports have in common is said once.
  return [...new Map(all.map((element) => [elementId(element), element])).values()];
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
