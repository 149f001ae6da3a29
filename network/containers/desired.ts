import type { Cidr, Ip, IpPrefix, Mac } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { LoopbackRedirect, PublishedDesired } from "../model/desired.ts";
import type { PortRates } from "../model/rates.ts";

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
   * The identity of the namespace when the attachment was made (`AttachmentObserved`): nothing is
   * made in another namespace at that path. Absent: any namespace.
   */
  readonly namespace?: string;
  /** The end that is a port of the bridge. */
  readonly hostLink: IfName;
  /** The end inside, as the runtime names it: `eth0`. */
  readonly guestLink: string;
  /**
   * The caller made the pair and sets up the inside (OpenShift SDN's plugin): podnet only repairs
   * the host's end. Absent: podnet makes the pair and sets it up.
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
  /** As for a pod's port: untagged member of this VLAN only. */
  readonly vlan?: number;
  /** The bridge is foreign. */
  readonly foreign?: true;
  /** Absent: not limited. */
  readonly rates?: PortRates;
  /** A link in the namespace that another program puts there; without that link nothing is done. */
  readonly macvlan?: MacvlanDesired;
  /** As for a pod: absent if it has never published anything. */
  readonly published?: readonly PublishedDesired[];
  readonly withdrawn?: readonly PublishedDesired[];
  /** Loopback ports of the host that its runtime listens at, and that lead to podnetd's. */
  readonly loopback?: readonly LoopbackRedirect[];
  /**
   * Later plugins may not have run yet: differences inside are neither reported nor reverted, and
   * become `later` once the plugins are done. A link that is gone or down is reported.
   */
  readonly awaitsPlugins?: true;
  /** The changes that later plugins made inside. */
  readonly later?: LaterChanges;
}

/** A route inside. Absent members are the kernel's choice. */
export interface RouteDesired {
  readonly destination: Cidr;
  /**
   * Absent: the destination is on the link itself. A gateway that no address reaches is assumed to
   * be on the link.
   */
  readonly gateway?: Ip;
  readonly mtu?: number;
  /** The maximum segment size that TCP advertises, in bytes. */
  readonly advmss?: number;
  /** Lower is preferred. */
  readonly priority?: number;
  /** Default: 254, main. */
  readonly table?: number;
  /** The kernel's number: 0 anywhere, 253 on the link, 254 on the machine. */
  readonly scope?: number;
}

/** The link that OpenShift SDN lets a privileged pod have in addition to its own. */
interface MacvlanDesired {
  /** `macvlan0`. */
  readonly link: string;
  /**
   * How the host is reached by the pod's own link: the host's addresses are not reached by a
   * macvlan on them.
   */
  readonly gateway: Ip;
  /** Routed by the attachment's gateway, too. */
  readonly serviceCidr?: Cidr;
}

/** The properties of a complete attachment, for the caller. */
export interface AttachmentObserved {
  readonly bridge: ObservedEnd;
  readonly host: ObservedEnd;
  /** Absent with `madeByCaller`. */
  readonly guest?: ObservedEnd;
  /** Which namespace it is in; absent with `madeByCaller`. */
  readonly namespace?: string;
  /** Routes that were made behind routes of other links, with the metric they got. */
  readonly behind?: readonly RouteDesired[];
}

export interface ObservedEnd {
  readonly name: string;
  readonly mac: Mac;
  readonly mtu: number;
}

/**
 * The parts of a container's inside that later plugins, and runtimes after ADD, change on purpose:
 * values, and objects that they remove. A link that is gone or down is not such a change.
 */
export type InsidePart =
  | "mac"
  | "mtu"
  | `address ${IpPrefix}`
  | `route ${Cidr}`
  | `setting ${string}`;

/**
 * The inside of a container after later plugins were done. podnet keeps this state instead of what
 * ADD made.
 */
export interface LaterChanges {
  readonly mac?: Mac;
  /** Smaller than the planned one. */
  readonly mtu?: number;
  /** Left alone, whatever becomes of them. */
  readonly left?: readonly InsidePart[];
}
