import { hash } from "node:crypto";
import {
  type Cidr,
  type Family,
  familyOf,
  type Ip,
  type IpPrefix,
  type Mac,
  parseIp,
} from "../../core/address.ts";
import type { HostAccess } from "../../core/host-access.ts";
import type { IfName } from "../../core/names.ts";
import type { PortRates } from "./rates.ts";

/**
 * The link group, route protocol and comment that mark podnet's objects. Unmarked objects are never
 * changed.
 */
export const mark = {
  linkGroup: 73,
  /** Links on their way out are gathered here; one RTM_DELLINK ends them all. */
  pendingDeleteGroup: 74,
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
 * The ports of each bridge have a link group of their own: these two bits, and thirty bits of a
 * digest of the bridge's name.
 */
const portGroups = 0x4000_0000;

/**
 * The link group of podnet's ports on a bridge. Rules identify the network of a frame by it, so
 * that the rules do not depend on the number of pods, and apply to a port as soon as it is a port.
 * Two bridges share a group with a probability of one in a thousand million.
 */
export const portGroup = (bridge: IfName): number =>
  portGroups | (hash("sha256", bridge, "buffer").readUInt32BE() & (portGroups - 1));

/** Whether a link group is one of podnet's: its own, or that of ports. */
export const isOurGroup = (group: number): boolean =>
  group === mark.linkGroup || group >>> 30 === portGroups >>> 30;

/** Matches the link groups of all ports, by their first two bits. */
export const allPortGroups = `and 0xc0000000 == 0x${portGroups.toString(16)}`;

/** A network's own part of the host. */
export interface NetworkFragment {
  readonly kind: "network";
  /** The network's name. */
  readonly key: string;
  readonly bridge: IfName;
  /** The gateways with their prefix lengths: the addresses of the bridge itself. */
  readonly gateways: readonly IpPrefix[];
  readonly mtu: number;
  /** Masquerade packets that leave the host from these networks. */
  readonly masquerade: readonly Cidr[];
  /** False with `disable_iptables`. */
  readonly firewall: boolean;
  /** The ancestors' chain, `HYPER` unless configured. */
  readonly chain: string;
  /** Set forwarding of its families (and remember that we did). */
  readonly forward: boolean;
  /** Pods of this network cannot reach each other, not even through the gateway. Default: false. */
  readonly isolated?: boolean;
  /** Pods reach 169.254.0.0/16 and the clouds' metadata outside of this host. Default: false. */
  readonly cloudMetadata?: boolean;
  /** What its guests reach on the host beyond what podnet serves there. Default: nothing. */
  readonly hostAccess?: HostAccess;
  /** Connections that each pod may keep tracked; 0 is no limit. Default: `usualShare`. */
  readonly connections?: number;
  /** Name servers that its guests may ask at the host, in addition to the gateways. */
  readonly dns?: readonly Ip[];
  /**
   * Connections that another program on this host has translated (DNAT) may reach all of the
   * network. Default: false.
   */
  readonly acceptTranslated?: boolean;
  /** Sources that may reach all of the network. Default: none. */
  readonly admit?: readonly Cidr[];
  /** EtherTypes that its guests may send, in addition to those of IPv4, IPv6 and ARP. */
  readonly ethertypes?: readonly number[];
  /** The bridge filters VLANs. Default: false. */
  readonly vlanFiltering?: boolean;
  /** Its subnets may overlap the subnets of another link of the host. Default: false. */
  readonly mayOverlap?: boolean;
  /** Gateways it had before, which go from a bridge of ours. */
  readonly retired?: readonly IpPrefix[];
}

/**
 * Whether the network has addresses of this family; otherwise nothing of that family is made for
 * it.
 */
export const hasFamily = (network: NetworkFragment, family: Family): boolean =>
  network.gateways.some((gateway) => familyOf(gateway) === family);

/** The ports of a pod or container on bridges, and its published ports. */
interface Plugged {
  /** The pod's id, or the attachment's. */
  readonly key: string;
  readonly ports: readonly PortDesired[];
  /**
   * Absent if the pod has never published anything (and in plans of an earlier podnetd): then no
   * rules are looked at. A list, even an empty one, is compared with the rules of what was
   * published before.
   */
  readonly published?: readonly PublishedDesired[];
  /**
   * Addresses that accept connections which another program on this host has translated (DNAT):
   * addresses of containers, for which portmap and kube-proxy translate. Their rules are like those
   * of published ports, and are looked at together with them.
   */
  readonly translated?: readonly Ip[];
  /**
   * Loopback ports of the host that lead to ports of podnetd. A fragment with this list has a list
   * `published` as well.
   */
  readonly loopback?: readonly LoopbackRedirect[];
  /**
   * The ports that were published before the last change of `published`: connections that still use
   * them are cut.
   */
  readonly withdrawn?: readonly PublishedDesired[];
  /**
   * Addresses beyond its networks' subnets that it may send from.
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
 * The fragment of a container. `containers/` makes its link; in every other respect the link is
 * like a pod's tap. Its only port bears `attachmentMark`.
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
  /** The bridge through which the pod is reached. */
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

/** The addresses on which podnetd listens for redirected connections. */
export const redirectedTo = { 4: parseIp("127.0.0.1"), 6: parseIp("::1") } as const;

/**
 * An address that a guest may send from by one of its ports, although its network has no subnet
 * with it.
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
  /** The bridge is foreign. */
  readonly foreign?: true;
  /**
   * `off`: its guest may send anything, as routers do. `own-link-local`: its guest chooses its
   * link-local addresses, which are not made of its MAC then. Absent: it sends with `guestMac`,
   * with its addresses and with the link-local address made of its MAC only.
   */
  readonly guard?: "off" | "own-link-local";
  /**
   * Addresses of its guest's other ports on the bridge: Linux answers for each of its addresses by
   * whichever link it is asked.
   */
  readonly otherAddresses?: readonly Ip[];
  /** Nothing had its addresses before, so that no neighbor knows another MAC for them. */
  readonly fresh?: true;
  /** Its pod has other ports, with which it has one share of connections. */
  readonly sharing?: true;
  /** MACs that it sends with in addition to `guestMac`. */
  readonly otherMacs?: readonly Mac[];
  /** Its MAC may be changed by another program: any that its bridge and other ports do not have. */
  readonly macMayChange?: true;
  /** The link that limits what its guest sends, which is there as long as `rates` asks for it. */
  readonly ifb?: IfName;
  /** Absent: not limited. */
  readonly rates?: PortRates;
}

export type Fragment = NetworkFragment | PluggedFragment;

/** Names a fragment without its contents: enough to remove it. */
export type FragmentKey = Pick<Fragment, "kind" | "key">;
