import type { Ip } from "../core/address.ts";
import type { NetworkName, PodName, ServiceName } from "../core/names.ts";

/** A service as asked for, every field checked by itself. */
export interface ServiceSpec {
  readonly name: ServiceName;
  readonly network: NetworkName;
  /** At most one of each family, IPv4 first; none: podnet chooses. */
  readonly addresses: readonly Ip[];
  readonly ports: readonly ServicePortSpec[];
  readonly backends: readonly BackendSpec[];
  /** Labels that more of its backends have, all of them. Absent: it has no more. */
  readonly select?: Readonly<Record<string, string>>;
  /** By what connections are of one backend. Absent: by nothing. */
  readonly affinity?: "client";
  /** Absent: backends are not asked. */
  readonly check?: BackendCheck;
  /** All hosts of the network's overlay serve it. Absent: this host alone. */
  readonly scope?: "overlay";
}

/** How backends are asked whether they serve. */
export interface BackendCheck {
  /** What is asked for by HTTP. Absent: a TCP connection is enough. */
  readonly path?: string;
  /** Absent: the backend's own. */
  readonly port?: number;
  readonly intervalS: number;
  readonly timeoutS: number;
  /** Good answers in a row that make a backend healthy again. */
  readonly rise: number;
  /** Bad answers in a row that make it unhealthy. */
  readonly fall: number;
}

/** Changes of single backends, every field checked by itself. */
export interface BackendChange {
  readonly set: readonly BackendSpec[];
  /** Pods and addresses. */
  readonly remove: readonly string[];
}

export interface ServicePortSpec {
  readonly protocol: "tcp" | "udp" | "sctp";
  readonly port: number;
  readonly target: number;
}

export type BackendSpec = (
  | { readonly pod: PodName; readonly address?: never }
  | { readonly address: Ip; readonly pod?: never }
) & {
  /** 0 to 100. */
  readonly weight: number;
  /** In place of the target of the service's one port. */
  readonly port?: number;
};
