import type { Ip } from "../../core/address.ts";
import type { Flows } from "./flows.ts";

/** One host port at one address. */
export interface PortAt {
  readonly protocol: "tcp" | "udp";
  /** `0.0.0.0` and `::` stand for all addresses of a family. */
  readonly hostIp: Ip;
  readonly hostPort: number;
}

/** The address and port in the pod to which traffic on loopback is forwarded. */
export interface Lead {
  readonly podIp: Ip;
  readonly podPort: number;
}

/** The traffic that a port serves, looked up for each connection, as addresses of pods change. */
export interface Served {
  /** Names the host port among the pod's. */
  readonly key: string;
  lead: Lead;
  readonly flows: Flows;
}

/** A socket bound to a host port. */
export interface HeldPort {
  /** Lets go of the port at once; connections are the flows' to end. */
  close(): void;
}
