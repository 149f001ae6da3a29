/**
 * The sets and maps of our table. A network has few elements; the elements of pods are in hashed
 * sets, so that neither a packet nor a change takes longer with many pods.
 */
export const sets = {
  /** Bridges of networks: packets to them are filtered. */
  bridges: { type: "ifname" },
  /**
   * A bridge and itself, where its pods may talk: their frames pass here with
   * bridge-nf-call-iptables=1.
   */
  within: { type: "ifname . ifname" },
  /** A bridge and itself, where its pods may not. */
  apart: { type: "ifname . ifname" },
  /**
   * Bridges of networks that accept every connection which another program on this host has
   * translated.
   */
  translating: { type: "ifname" },
  /** Addresses that accept such connections, too. */
  translated4: { type: "ipv4_addr" },
  translated6: { type: "ipv6_addr" },
  /** Sources, and bridges of networks that they reach. */
  admitting4: { type: "ipv4_addr . ifname", interval: true },
  admitting6: { type: "ipv6_addr . ifname", interval: true },
  /**
   * Subnets and the bridges they come from: whose addresses are hidden when they leave their
   * network.
   */
  masqueraded4: { type: "ipv4_addr . ifname", interval: true },
  masqueraded6: { type: "ipv6_addr . ifname", interval: true },
  /**
   * Subnets and their bridges: who asks from there for a port published there is answered by way of
   * the host.
   */
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
  /** Hairpins of single pods, which are on foreign bridges. */
  hairpin4: { type: "ipv4_addr . ifname . ipv4_addr", interval: true },
  hairpin6: { type: "ipv6_addr . ifname . ipv6_addr", interval: true },
  /** This host's parts of overlays. */
  lease4: { type: "ipv4_addr", interval: true },
  lease6: { type: "ipv6_addr", interval: true },
  /** Overlays and this host's parts of them: who may reach pods here from another host. */
  admitted4: { type: "ipv4_addr . ipv4_addr", interval: true },
  admitted6: { type: "ipv6_addr . ipv6_addr", interval: true },
  /** Sources: from here, addresses are not hidden in the overlay. */
  inside4: { type: "ipv4_addr . ipv4_addr", interval: true },
  inside6: { type: "ipv6_addr . ipv6_addr", interval: true },
  /**
   * Overlays, with the outside destinations that see pods' own addresses, and the outside sources
   * whose addresses pods see.
   */
  shown4: { type: "ipv4_addr . ipv4_addr", interval: true },
  shown6: { type: "ipv6_addr . ipv6_addr", interval: true },
  trusted4: { type: "ipv4_addr . ipv4_addr", interval: true },
  trusted6: { type: "ipv6_addr . ipv6_addr", interval: true },
  /**
   * Overlays whose addresses are hidden outside, and outside addresses in them: by random ports, or
   * by any.
   */
  randomly4: { type: "ipv4_addr", interval: true },
  randomly6: { type: "ipv6_addr", interval: true },
  plainly4: { type: "ipv4_addr", interval: true },
  plainly6: { type: "ipv6_addr", interval: true },
} as const satisfies Readonly<Record<string, SetKind>>;

export interface SetKind {
  readonly type: string;
  /** The value in a map. */
  readonly value?: string;
  readonly interval?: true;
  /** The fields that the elements are of, where these have no type of their own. */
  readonly fields?: string;
  /** The fields that the values of a map are of, where its key is of `fields`. */
  readonly valueFields?: string;
  /** The kernel adds elements itself, and counts packets by them. */
  readonly counted?: true;
  /** The most of them, unless it is the usual number. */
  readonly size?: number;
}

/**
 * The sets of the guard at bridges' ports (`port-guard.ts`). Each port has its own elements, and a
 * network a few, by the link group of its ports (`portGroup`). Sets of raw fields have numbers:
 * MACs and IPv6 addresses as nft prints those.
 */
export const bridgeGuardSets = {
  /** Ports and the MACs that they send with. */
  macs: { type: "ifname . integer", fields: "iifname . @ll,48,48" },
  /** Ports, their IPv4 addresses and MACs together: what most frames have. */
  senders4: {
    type: "ifname . ipv4_addr . integer",
    fields: "iifname . ip saddr . @ll,48,48",
  },
  /** Ports and the addresses that they send from, and say that they have. */
  addresses4: { type: "ifname . ipv4_addr" },
  /** The IPv4 addresses that ports of a network have, by the link group of its ports. */
  held4: { type: "devgroup . ipv4_addr" },
  addresses6: { type: "ifname . integer", fields: "iifname . @nh,64,128" },
  /** Ports whose addresses podnet does not know: their MAC decides alone. */
  any4: { type: "ifname" },
  any6: { type: "ifname" },
  /** Ports whose guests choose their link-local addresses: any that is not in `links`. */
  choosing: { type: "ifname" },
  /** Ports whose MAC may have been changed by another program: any that is not in `known`. */
  changing: { type: "ifname" },
  /** Ports whose addresses no neighbor can know by another MAC: nothing had them before. */
  fresh: { type: "ifname" },
  /** Ports without a guard. */
  unguarded: { type: "ifname" },
  /** The MACs of a bridge and of its ports, and the link-local addresses made of them. */
  known: { type: "devgroup . integer", fields: "iifgroup . @ll,48,48" },
  links: { type: "devgroup . integer", fields: "iifgroup . @nh,64,128" },
  /** Networks that have no IPv6. */
  without6: { type: "devgroup" },
  /** Networks whose bridge leaves tags of VLANs as they are. */
  trunks: { type: "devgroup" },
  /** Further protocols that guests of a network speak. */
  ethertypes: { type: "devgroup . ether_type" },
  /** What was dropped, by the index of the port and the kind: written by the kernel. */
  drops: { type: "iface_index . mark", counted: true },
} as const satisfies Readonly<Record<string, SetKind>>;

export const hostGuardSets = {
  /** Bridges of networks: packets to them stay on this host. */
  within_host: { type: "ifname" },
  /** Interfaces from which the clouds' metadata are not reached. */
  no_metadata: { type: "ifname" },
  /** Bridges of networks that do not open all of the host. */
  host_closed: { type: "ifname" },
  /** Ports of the host that a network opens. */
  host_ports: { type: "ifname . inet_proto . inet_service", interval: true },
  /** Addresses of the host at which a network's guests ask for names. */
  dns4: { type: "ifname . ipv4_addr" },
  dns6: { type: "ifname . ipv6_addr" },
  /** What was refused on the way to the host, by the port's identity: written by the kernel. */
  refused: { type: "classid", counted: true },
} as const satisfies Readonly<Record<string, SetKind>>;

/**
 * The sets of the table of connections (`shares-table.ts`): for each limit the bridges of networks
 * that have it, and the ports that hold connections, as the kernel keeps them; and the bridges and
 * addresses of pods with several ports, with the chains in which those are counted together.
 */
export const shareSets = {
  share512: { type: "ifname" },
  share2048: { type: "ifname" },
  share8192: { type: "ifname" },
  share32768: { type: "ifname" },
  held512: { type: "classid", counted: true },
  held2048: { type: "classid", counted: true },
  held8192: { type: "classid", counted: true },
  held32768: { type: "classid", counted: true },
  sharing4: { type: "ifname . ipv4_addr", value: "verdict" },
  sharing6: { type: "ifname . ipv6_addr", value: "verdict" },
  /** Connections that were refused, by the identity of the port. */
  exceeded: { type: "classid", counted: true },
} as const satisfies Readonly<Record<string, SetKind>>;

/**
 * The sets of the table of hosts that may send by their own addresses (`senders-table.ts`), which
 * has `lease4` and `lease6` as well.
 */
export const senderSets = {
  /** Public addresses of other hosts and the part of an overlay here that they may send to. */
  hosts4: { type: "ipv4_addr . ipv4_addr", interval: true },
  hosts6: { type: "ipv6_addr . ipv6_addr", interval: true },
} as const satisfies Readonly<Record<string, SetKind>>;

/**
 * The maps of the table of policies: from a pod's bridge and address to the chain that decides
 * about the flows it begins, or that others begin with it, or which of them the relay takes; and
 * what was denied.
 */
export const policySets = {
  egress4: { type: "ifname . ipv4_addr", value: "verdict" },
  egress6: { type: "ifname . ipv6_addr", value: "verdict" },
  ingress4: { type: "ifname . ipv4_addr", value: "verdict" },
  ingress6: { type: "ifname . ipv6_addr", value: "verdict" },
  relay4: { type: "ifname . ipv4_addr", value: "verdict" },
  relay6: { type: "ifname . ipv6_addr", value: "verdict" },
  /** The pods' numbers, by which their denials are counted. */
  holder4: { type: "ifname . ipv4_addr", value: "classid" },
  holder6: { type: "ifname . ipv6_addr", value: "classid" },
  /** Packets that were denied, by address, pod and rule: written by the kernel. */
  denied4: { type: "ipv4_addr . classid . mark", counted: true, size: 1 << 18 },
  denied6: { type: "ipv6_addr . classid . mark", counted: true, size: 1 << 18 },
  /** Pods whose denials were logged a moment ago: written by the kernel. */
  reported: { type: "classid", counted: true },
} as const satisfies Readonly<Record<string, SetKind>>;

/** The sets of the table of ports of pods that have a policy (`policed-ports.ts`). */
export const policedPortSets = {
  policed: { type: "ifname" },
} as const satisfies Readonly<Record<string, SetKind>>;

const slots = <Type extends string>(address: Type, valueFields: string) =>
  ({
    type: "integer",
    fields: "numgen inc mod 2",
    value: `${address} . inet_service`,
    valueFields,
  }) as const;

/**
 * The sets and maps of the table of services (`service-table.ts`), which has `own4` and `own6` as
 * well.
 */
export const serviceSets = {
  own4: sets.own4,
  own6: sets.own6,
  /** Addresses of services. */
  virtual4: { type: "ipv4_addr" },
  virtual6: { type: "ipv6_addr" },
  /** Bridges from which a service is reached, its address and port, and the chain that chooses. */
  services4: { type: "ifname . inet_proto . ipv4_addr . inet_service", value: "verdict" },
  services6: { type: "ifname . inet_proto . ipv6_addr . inet_service", value: "verdict" },
  /** As above, for connections of this host. */
  local4: { type: "inet_proto . ipv4_addr . inet_service", value: "verdict" },
  local6: { type: "inet_proto . ipv6_addr . inet_service", value: "verdict" },
  /**
   * Backends, by the numbers of their slots. (nft 1.0.6 has no type for a map of several
   * protocols.)
   */
  tcp4: slots("ipv4_addr", "ip daddr . tcp dport"),
  tcp6: slots("ipv6_addr", "ip6 daddr . tcp dport"),
  udp4: slots("ipv4_addr", "ip daddr . udp dport"),
  udp6: slots("ipv6_addr", "ip6 daddr . udp dport"),
  sctp4: slots("ipv4_addr", "ip daddr . sctp dport"),
  sctp6: slots("ipv6_addr", "ip6 daddr . sctp dport"),
} as const satisfies Readonly<Record<string, SetKind>>;

/** The sets of the table in which is noted what a pod opens (`learn-table.ts`). */
export const learnSets = {
  /** The pod's bridges and addresses. */
  learning4: { type: "ifname . ipv4_addr" },
  learning6: { type: "ifname . ipv6_addr" },
  /** Destinations: written by the kernel. */
  learned4: { type: "ipv4_addr . inet_proto . inet_service", counted: true, size: 4096 },
  learned6: { type: "ipv6_addr . inet_proto . inet_service", counted: true, size: 4096 },
  pinged4: { type: "ipv4_addr", counted: true, size: 1024 },
  pinged6: { type: "ipv6_addr", counted: true, size: 1024 },
} as const satisfies Readonly<Record<string, SetKind>>;

const everySet = {
  ...sets,
  ...bridgeGuardSets,
  ...hostGuardSets,
  ...shareSets,
  ...senderSets,
  ...policySets,
  ...policedPortSets,
  ...learnSets,
  ...serviceSets,
};

export type SetName = keyof typeof everySet;
export const setNames = Object.keys(sets) as (keyof typeof sets)[];
export const kindOf = (set: SetName): SetKind => everySet[set];
export const isSetName = (name: string): name is SetName => Object.hasOwn(everySet, name);

/** One element of a set or map, its words as nft writes them. */
export interface Element {
  readonly set: SetName;
  readonly key: string;
  readonly value?: string;
  /** The mark of the owner; undefined if another program added the element. */
  readonly owner: string | undefined;
}

/** Names an element whatever it says. */
export const elementId = ({ set, key }: Pick<Element, "set" | "key">): string => `${set} ${key}`;

/** An element as nft writes it: `6 . 8080 comment "podnet:pod:x" : 192.168.123.2 . 80`. */
export function elementText({ key, owner, value }: Element): string {
  const comment = owner === undefined ? "" : ` comment "${owner}"`;
  return `${key}${comment}${value === undefined ? "" : ` : ${value}`}`;
}
