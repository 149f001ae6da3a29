import type { IpRange } from "../core/ip-range.ts";
import type { DomainPattern } from "./domain.ts";
import type { PodSelector, PolicyTarget } from "./selector.ts";

/** What a rule does with a flow that it matches. */
export type Action = "allow" | "deny";

export const protocols = ["tcp", "udp", "sctp", "icmp"] as const;
/** `icmp` is that of the address's family: ICMP or ICMPv6. */
export type Protocol = (typeof protocols)[number];

/** First and last port, both included. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/** A protocol, and its ports; without ports all of it. */
export interface Service {
  readonly protocol: Protocol;
  readonly ports?: PortRange;
}

/** The other sides that a rule matches: any that one of the lists has. All empty: none. */
export interface Peers {
  /** In order, apart from each other. */
  readonly ranges: readonly IpRange[];
  readonly domains: readonly DomainPattern[];
  readonly pods: readonly PodSelector[];
}

/** One rule. It matches a flow whose other side and service it names. */
export interface Rule {
  /** Unique in its direction. People read it when it denies. */
  readonly name: string;
  /** Why there is such a rule, for people; may be empty. */
  readonly reason: string;
  readonly action: Action;
  /** Absent: every other side. */
  readonly peers?: Peers;
  /** Absent: every protocol and port. */
  readonly services?: readonly Service[];
}

/** The rules of one direction: the first that matches decides. */
export interface Rules {
  /** What happens to a flow that no rule matches. */
  readonly default: Action;
  readonly rules: readonly Rule[];
}

/** A named policy. Without rules for a direction it says nothing about that direction. */
export interface Policy {
  readonly name: string;
  /** Pods and containers that get it; absent: none. */
  readonly appliesTo?: PolicyTarget;
  /** Connections that a pod opens. */
  readonly egress?: Rules;
  /** Connections that others open to a pod. */
  readonly ingress?: Rules;
}
