import type { Ip, IpPrefix, Mac } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { ObservedBucket } from "../../linux/rtnetlink/qdisc.ts";
import type { IngressFilter } from "../../linux/rtnetlink/redirect.ts";
import type { FragmentKey } from "./desired.ts";

/** A link as far as podnet cares. */
export interface ObservedLink {
  readonly index: number;
  readonly name: IfName;
  /** `bridge`, `tun`, `veth`; undefined for hardware. */
  readonly kind: string | undefined;
  readonly alias: string | undefined;
  readonly group: number;
  readonly mtu: number;
  readonly up: boolean;
  readonly mac: Mac | undefined;
  /** Index of the bridge it is a port of; 0 for none. */
  readonly master: number;
  /** Of a bridge; undefined of others. */
  readonly vlanFiltering: boolean | undefined;
  /**
   * Of a bridge: the limit for learned addresses, 0 for none; undefined if the kernel has no such
   * limit.
   */
  readonly fdbMaxLearned?: number | undefined;
  /** Of a bridge: it learns nothing from frames that bridges do not forward; likewise. */
  readonly noLinkLocalLearn?: boolean | undefined;
  /** Of a bridge: frames between its ports pass the host's rules, of both families. */
  readonly nfCall?: boolean | undefined;
  /** Of a bridge port; undefined for other links. */
  readonly isolated: boolean | undefined;
  /** Likewise. */
  readonly hairpin?: boolean | undefined;
  readonly learning?: boolean | undefined;
  /**
   * The VLAN it is an untagged member of, and of no other; undefined unless that was looked at and
   * is so.
   */
  readonly vlan?: number | undefined;
  /** The kind of its root queue. */
  readonly queue?: string | undefined;
  /** Absent unless that was looked at. */
  readonly queues?: ObservedQueues | undefined;
}

/** The queues of ours that a link has, which limit its rates. */
export interface ObservedQueues {
  readonly root?: ObservedBucket;
  /** Inside of the root queue. */
  readonly inner?: ObservedBucket;
  /** The filters on what comes in by the link; undefined if it can have none. */
  readonly filters?: readonly IngressFilter[] | undefined;
}

/** A link that a request names, with the properties that a plan depends on. */
export interface NamedLink {
  readonly name: IfName;
  readonly kind: "bridge" | "tap" | "other";
  /** Whether it bears podnet's mark. */
  readonly ours: boolean;
  readonly mtu: number;
  /** Of a tap: a program has it open. */
  readonly carrier: boolean;
  /** Of a bridge. */
  readonly vlanFiltering?: boolean | undefined;
  /** Of a tap: it outlives its user. */
  readonly persistent?: boolean | undefined;
  /** Of a tap. */
  readonly multiQueue?: boolean | undefined;
}

/** The host's end of a bridge. */
export interface ObservedRouter {
  readonly mac: Mac;
  /** Absent without IPv6, and until the kernel has found no duplicate. */
  readonly linkLocal?: Ip;
}

export interface ObservedAddress {
  readonly link: number;
  readonly prefix: IpPrefix;
}

/** The observed state for a network fragment, without the firewall. */
export interface ObservedNetwork {
  /** The link with the bridge's name, which may be foreign. */
  readonly bridge: ObservedLink | undefined;
  /** Every address of the host. */
  readonly addresses: readonly ObservedAddress[];
  /** Names by index, for messages. */
  readonly linkNames: ReadonlyMap<number, string>;
  readonly ipForward: string;
  /** Absent for a network without IPv6, and on a kernel without. */
  readonly ipv6Forward?: string | undefined;
  /** The present values of `bridgeSettings`; undefined without bridge or IPv6. */
  readonly settings: ReadonlyMap<string, string | undefined>;
  /** Whether bridges of this kernel can filter VLANs; absent if there is no bridge to show it. */
  readonly canFilterVlans?: boolean | undefined;
  /** The bridge is another's, and we have made it keep its MAC. */
  readonly pinned: boolean;
}

/** The links a pod fragment speaks of, by name; absent ones are not in it. */
export type ObservedPod = ReadonlyMap<IfName, ObservedLink>;

/** A pod or container, and the names that links of its own have. */
export interface LinksOwner extends FragmentKey {
  readonly names: readonly IfName[];
}
