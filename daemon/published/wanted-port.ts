import type { PublishedPlan } from "./published-plan.ts";
import type { Lead, PortAt } from "./held-port.ts";

/** A host port to hold, and the address that it leads to. */
export interface WantedPort extends PortAt, Lead {
  /** Names it among the pod's. */
  readonly key: string;
}

/**
 * Each host port, at each address. SCTP ports are not held by sockets: only their rows keep other
 * pods and containers away.
 */
export function portsOf(published: readonly PublishedPlan[]): WantedPort[] {
  return published.flatMap(({ protocol, hostPort, podPort, count, at }) => {
    if (protocol === "sctp") return [];
    return at.flatMap(({ hostIp, podIp }) =>
      Array.from({ length: count }, (_, i) => ({
        key: `${protocol} ${hostIp} ${hostPort + i}`,
        protocol,
        hostIp,
        hostPort: hostPort + i,
        podIp,
        podPort: podPort + i,
      })),
    );
  });
}
