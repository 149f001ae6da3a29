/**
 * The sets and maps of our table. What of them is a network's is in few elements; what is a pod's
 * is in those that are hashed, so that neither a packet nor a change takes longer when there are
 * many.
 */
export const sets = {
  /** Bridges of networks: what is sent there is judged. */
  bridges: { type: "ifname" },
  /**
   * A bridge and itself, where its pods may talk: their frames pass here with
   * bridge-nf-call-iptables=1.
   */
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
   * Overlays and who outside of them sees pods' own addresses; and those by whom theirs are not
   * hidden from pods.
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
  /** What a map gives for it. */
  readonly value?: string;
  readonly interval?: true;
}

/**
 * The sets of the guard's tables, whose names are none of the above. A few elements a network: who
 * a frame is from is told by the link group of the port that it came in by (`portGroup`). Of pods
 * there are those alone that have addresses on their `lo`.
 */
export const bridgeGuardSets = {
  /** Groups of networks that have rules: of their guests the sources are looked at. */
  guarded: { type: "devgroup" },
  /** Groups that have no IPv6. */
  without6: { type: "devgroup" },
  /** What their guests may call themselves towards the host. */
  sources4: { type: "devgroup . ipv4_addr", interval: true },
  sources6: { type: "devgroup . ipv6_addr", interval: true },
  /**
   * Ports, and addresses beyond their network's that podnet gave the guest. By port: several guests
   * may have one address.
   */
  given4: { type: "ifname . ipv4_addr" },
  given6: { type: "ifname . ipv6_addr" },
} as const satisfies Readonly<Record<string, SetKind>>;

export const hostGuardSets = {
  /** Bridges of networks: what goes there stays on this host. */
  within_host: { type: "ifname" },
  /** Interfaces from which the clouds' metadata are not reached. */
  no_metadata: { type: "ifname" },
} as const satisfies Readonly<Record<string, SetKind>>;

/**
 * Of the table of hosts that may send by their own addresses (`senders-table.ts`), which has
 * `lease4` and `lease6` as well.
 */
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

/** An element as nft writes it: `6 . 8080 comment "podnet:pod:x" : 192.168.123.2 . 80`. */
export function elementText({ key, owner, value }: Element): string {
  const comment = owner === undefined ? "" : ` comment "${owner}"`;
  return `${key}${comment}${value === undefined ? "" : ` : ${value}`}`;
}
