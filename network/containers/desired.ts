import type { Cidr, Ip, IpPrefix, Mac } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { LoopbackRedirect, PublishedDesired } from "../model/desired.ts";

/**
 * A container's part of the host: a pair of links, one end a port of a bridge, the other in the
 * container's namespace.
 */
export interface AttachmentFragment {
  readonly kind: "attachment";
  /**
   * The attachment's id: lower-case letters and digits, at most 63. `attachmentMark` makes `alias`
   * from it.
   */
  readonly key: string;
  /** A path that leads to the namespace: `/run/netns/x`, `/proc/PID/ns/net`. */
  readonly netns: string;
  /**
   * Which namespace that was when the attachment was made (`AttachmentObserved`): in another one by
   * the same path nothing is made. Absent: whichever it is.
   */
  readonly namespace?: string;
  /** The end that is a port of the bridge. */
  readonly hostLink: IfName;
  /** The end inside, as the runtime names it: `eth0`. */
  readonly guestLink: string;
  /**
   * The pair was made by who asks, who sets up the inside as well (OpenShift SDN's plugin): the
   * host's end alone is made what it should be. Absent, the pair is made and set up.
   */
  readonly madeByCaller?: true;
  readonly bridge: IfName;
  /** Of the end inside. */
  readonly mac: Mac;
  readonly mtu: number;
  /** Of the end inside. */
  readonly addresses: readonly IpPrefix[];
  /** All routes inside that are ours, in this order: the default ones too. */
  readonly routes: readonly RouteDesired[];
  /** The mark of its links on the host. */
  readonly alias: string;
  /** Ports of the bridge that are isolated do not reach each other. */
  readonly isolated: boolean;
  /** As a pod's port: untagged member of this VLAN alone. */
  readonly vlan?: number;
  /** The bridge is somebody else's. */
  readonly foreign?: true;
  readonly bandwidth?: Bandwidth;
  /** What limits the way out of the container; wanted when `bandwidth.fromGuest` is. */
  readonly ifb?: IfName;
  /** A link in the namespace that somebody else puts there; without it nothing is done. */
  readonly macvlan?: MacvlanDesired;
  /** As a pod's: absent when it has never published anything. */
  readonly published?: readonly PublishedDesired[];
  readonly withdrawn?: readonly PublishedDesired[];
  /** Loopback ports of the host that its runtime listens at, and that lead to podnetd's. */
  readonly loopback?: readonly LoopbackRedirect[];
  /**
   * The plugins after podnet's in the list may not have been run yet: what is different inside is
   * neither told nor put back, and becomes `later` once they are done. A link that is gone or down
   * is.
   */
  readonly settling?: true;
  /** What those plugins made of the inside. */
  readonly later?: LaterChanges;
}

/** A route inside. Absent members are the kernel's choice. */
export interface RouteDesired {
  readonly destination: Cidr;
  /**
   * Absent: what is there is on the link itself. One that no address reaches is taken to be on the
   * link.
   */
  readonly gateway?: Ip;
  readonly mtu?: number;
  /** What TCP says it takes, in bytes. */
  readonly advmss?: number;
  /** Lower is preferred. */
  readonly priority?: number;
  /** 254, main, unless given. */
  readonly table?: number;
  /** The kernel's number: 0 anywhere, 253 on the link, 254 on the machine. */
  readonly scope?: number;
}

/** Either way, unless absent, has a limit of its own. */
export interface Bandwidth {
  /** CNI's ingress. */
  readonly toGuest?: RateLimit;
  /** CNI's egress. */
  readonly fromGuest?: RateLimit;
}

export interface RateLimit {
  readonly bitsPerSecond: number;
  /**
   * Bits that may go at once after a rest; what no link needs, and what no kernel takes, is cut to
   * what it does.
   */
  readonly burstBits: number;
}

/** What OpenShift SDN lets a privileged pod have alongside its own link. */
interface MacvlanDesired {
  /** `macvlan0`. */
  readonly link: string;
  /**
   * How the host is reached by the pod's own link: the host's addresses are not reached by a
   * macvlan on them.
   */
  readonly gateway: Ip;
  /** Goes by the same gateway. */
  readonly serviceCidr?: Cidr;
}

/** What there is when an attachment is as it should be, for who asks. */
export interface AttachmentObserved {
  readonly bridge: ObservedEnd;
  readonly host: ObservedEnd;
  /** Absent with `madeByCaller`. */
  readonly guest?: ObservedEnd;
  /** Which namespace it is in; absent with `madeByCaller`. */
  readonly namespace?: string;
  /** Routes that were made behind those of other links, with the metric they got. */
  readonly behind?: readonly RouteDesired[];
}

export interface ObservedEnd {
  readonly name: string;
  readonly mac: Mac;
  readonly mtu: number;
}

/**
 * What plugins after podnet's in a list, and runtimes after ADD, change inside a container by
 * intention: values, and what they take away. A link that is gone or down is none of it.
 */
export type InsidePart =
  | "mac"
  | "mtu"
  | `address ${IpPrefix}`
  | `route ${Cidr}`
  | `setting ${string}`;

/**
 * What later plugins made of the inside of a container, as it was seen once they were done. It is
 * kept instead of what ADD made.
 */
export interface LaterChanges {
  readonly mac?: Mac;
  /** Smaller than the planned one. */
  readonly mtu?: number;
  /** Left alone, whatever becomes of them. */
  readonly left?: readonly InsidePart[];
}
