import type { Ip } from "../../core/address.ts";
import type { PortRange } from "../../linux/port-range.ts";
import type { HostPorts, TakenPorts } from "./store.ts";

/** What the planner may know of the host's ports. */
export interface PortsSnapshot {
  /** Ports of pods that may be in the way. */
  readonly taken: readonly TakenPorts[];
  /** Where ports are chosen from. */
  readonly range: PortRange;
  /** The first to be tried; the others follow in turn. */
  readonly start: number;
  /** Ports that programs have bound on the host, where ports are to be chosen. */
  readonly bound: readonly Omit<HostPorts, "count">[];
  /** Which of the addresses asked for the host has. */
  readonly hostAddresses: Readonly<Record<Ip, boolean>>;
  /** False with `disable_iptables`. */
  readonly firewall: boolean;
}
