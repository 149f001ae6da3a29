import { createHash } from "node:crypto";
import {
  type Cidr,
  type Family,
  familyOf,
  type Ip,
  type IpPrefix,
  type Mac,
  parseIp,
} from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";

/**
 * Link group, route protocol and comment that mark what is podnet's. What bears no mark is never
 * touched.
 */
export const mark = {
  linkGroup: 73,
  /** Links on their way out are gathered here; one RTM_DELLINK ends them all. */
  graveyardGroup: 74,
  routeProtocol: 73,
  /**
   * Start of every link alias and rule comment, followed by the owner, e.g.
   * `podnet:pod:abcdefghijkl:0`.
   */
  alias: "podnet:",
} as const;

/**
 * How many addresses a bridge of ours learns at most: four for each of the 1,023 ports it can have.
 * Without a bound one guest fills the host's memory with them.
 */
export const fdbMaxLearned = 4092;

/**
 * Ports of bridges have a link group of their bridge's own: these two bits, and thirty of a digest
 * of its name.
 */
const portGroups = 0x4000_0000;

/**
 * The link group of podnet's ports on a bridge. By it rules tell which network a frame comes from,
 * so that they are the same with any number of pods, and a port has them from the moment it is one.
 * Two bridges of one group are one in a thousand million.
 */
export const portGroup = (bridge: IfName): number =>
  portGroups | (createHash("sha256").update(bridge).digest().readUInt32BE() & (portGroups - 1));

/** Whether a link group is one of podnet's: its own, or that of ports. */
export const isOurGroup = (group: number): boolean =>
  group === mark.linkGroup || group >>> 30 === portGroups >>> 30;

/** All link groups of ports, as nft writes a range. */
export const allPortGroups = `${portGroups}-${portGroups * 2 - 1}`;

/** A network's own part of the host. */
export interface NetworkFragment {
  readonly kind: "network";
  /** The network's name. */
  readonly key: string;
  readonly bridge: IfName;
  /** The gateway with its length: what the bridge itself holds. */
  readonly gateways: readonly IpPrefix[];
  readonly mtu: number;
  /** Masquerade what leaves the host from these networks. */
  readonly masquerade: readonly Cidr[];
  /** False with `disable_iptables`. */
  readonly firewall: boolean;
  /** The ancestors' chain, `HYPER` unless configured. */
  readonly chain: string;
  /** Set forwarding of its families (and remember that we did). */
  readonly forward: boolean;
  /**
   * Pods of this network cannot reach each other, by way of the gateway neither. False unless
   * given.
   */
  readonly isolated?: boolean;
  /**
   * Pods reach 169.254.0.0/16 and the clouds' metadata outside of this host. False unless given.
   */
  readonly cloudMetadata?: boolean;
  /**
   * Whatever somebody on this host has translated (DNAT) may reach all of the network. False unless
   * given.
   */
  readonly acceptTranslated?: boolean;
  /** From these sources all of the network is reached. None unless given. */
  readonly admit?: readonly Cidr[];
  /** The bridge filters VLANs. False unless given. */
  readonly vlanFiltering?: boolean;
  /** Its subnets may be those of another link of the host. False unless given. */
  readonly mayOverlap?: boolean;
  /** Gateways it had before, which go from a bridge of ours. */
  readonly retired?: readonly IpPrefix[];
}

/**
 * Whether the network has addresses of this family: without, nothing of that family is made for it.
 */
export const hasFamily = (network: NetworkFragment, family: Family): boolean =>
  network.gateways.some((gateway) => familyOf(gateway) === family);

/** Ports of bridges, and what is published of who is behind them. */
interface Plugged {
  /** The pod's id, or the attachment's. */
  readonly key: string;
  readonly ports: readonly PortDesired[];
  /**
   * Absent when the pod has never published anything (and in plans of an earlier podnetd): then no
   * rules are looked at. A list is compared, an empty one with whatever is left of what was
   * published before.
   */
  readonly published?: readonly PublishedDesired[];
  /**
   * Addresses that take connections which somebody on this host has translated (DNAT): of
   * containers, for which portmap and kube-proxy do that. Rules like those of what is published,
   * and looked at with them.
   */
  readonly translated?: readonly Ip[];
  /**
   * Loopback ports of the host that lead to podnetd's. Who has a list has one of what is published
   * as well.
   */
  readonly loopback?: readonly LoopbackRedirect[];
  /** What it has published up to the last change of that: who still speaks by it is cut off. */
  readonly withdrawn?: readonly PublishedDesired[];
  /**
   * Addresses beyond its networks' subnets that it may send from. Absent when it has never had any.
   * Who has a list has one of what is published as well, if need be an empty one: both are rules,
   * and looked at together.
   */
  readonly sources?: readonly SourceDesired[];
}

/**
 * One pod's part of the host. Its taps are made by `linux/tun` and die with QEMU; here they become
 * ports.
 */
export interface PodFragment extends Plugged {
  readonly kind: "pod";
}

/**
 * The fragment of a container: its link is made by `containers/`, and is in everything else what a
 * pod's tap is. Its one port's mark is `attachmentMark`.
 */
export interface AttachedFragment extends Plugged {
  readonly kind: "attachment";
}

export type PluggedFragment = PodFragment | AttachedFragment;

/**
 * Ports of a pod that are reached at the host by translation, `count` of them one after the other.
 */
export interface PublishedDesired {
  readonly protocol: "tcp" | "udp" | "sctp";
  /**
   * An address of the host; undefined is every one of the pod's family but loopback, which is never
   * translated.
   */
  readonly hostIp?: Ip;
  readonly hostPort: number;
  readonly podIp: Ip;
  readonly podPort: number;
  readonly count: number;
  /** Where the pod is reached. */
  readonly bridge: IfName;
  /**
   * The pod's network: who asks from there is answered by way of the host, for the pod would answer
   * it directly.
   */
  readonly subnet: Cidr;
}

/**
 * A loopback port of the host that podnetd cannot listen at, because another program does. What
 * this host sends to it goes to podnetd's own port instead, at 127.0.0.1 or, for IPv6, at ::1.
 */
export interface LoopbackRedirect {
  readonly protocol: "tcp" | "udp";
  /** Within 127.0.0.0/8, or ::1. */
  readonly hostIp: Ip;
  readonly hostPort: number;
  /** podnetd's. */
  readonly toPort: number;
}

/** Where podnetd listens for what is redirected. */
export const redirectedTo = { 4: parseIp("127.0.0.1"), 6: parseIp("::1") } as const;

/**
 * An address that a guest may send from by one of its ports, though its network has no such subnet.
 */
export interface SourceDesired {
  readonly tap: IfName;
  readonly address: Ip;
}

export interface PortDesired {
  readonly tap: IfName;
  readonly bridge: IfName;
  /**
   * The guest's, for neighbour clean-up; the tap's own is the kernel's, but on a foreign bridge.
   */
  readonly guestMac: Mac;
  readonly guestAddresses: readonly IpPrefix[];
  readonly alias: string;
  readonly isolated: boolean;
  readonly mtu: number;
  /** Untagged member of this VLAN alone; absent leaves it as the bridge has it. */
  readonly vlan?: number;
  /** Whether the bridge learns from its frames; absent is as ports are born: it does. */
  readonly learning?: boolean;
  /** The bridge is somebody else's. */
  readonly foreign?: true;
}

export type Fragment = NetworkFragment | PluggedFragment;

/** Names a fragment without its contents: enough to remove it. */
export type FragmentKey = Pick<Fragment, "kind" | "key">;
