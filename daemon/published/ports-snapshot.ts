import type { Ip } from "../../core/address.ts";
import type { PortRange } from "../../linux/sockets/port-range.ts";
import type { HostPorts, TakenPorts } from "./store.ts";

/** The state of the host's ports that the planner decides by. */
export interface PortsSnapshot {
  /** Ports of pods that may be in the way. */
  readonly taken: readonly TakenPorts[];
  /** The range that ports are chosen from; empty where none are to be chosen. */
  readonly range: PortRange;
  /** The first port that is tried; the others follow in turn. */
  readonly start: number;
  /** Ports that programs have bound on the host, where ports are to be chosen. */
  readonly bound: readonly Omit<HostPorts, "count">[];
  /** Which of the addresses asked for the host has. */
  readonly hostAddresses: Readonly<Record<Ip, boolean>>;
  /** False with `disable_iptables`. */
  readonly firewall: boolean;
}
