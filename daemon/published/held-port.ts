import type { Ip } from "../../core/address.ts";
import type { Flows } from "./flows.ts";

/** One host port at one address. */
export interface PortAt {
  readonly protocol: "tcp" | "udp";
  /** `0.0.0.0` and `::` stand for every one of a family. */
  readonly hostIp: Ip;
  readonly hostPort: number;
}

/** Where in the pod what comes by loopback is led. */
export interface Lead {
  readonly podIp: Ip;
  readonly podPort: number;
}

/** What a port of a pod's serves, looked at anew for each connection: addresses of pods change. */
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
