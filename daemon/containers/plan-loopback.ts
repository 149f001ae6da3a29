import type { PortSpec } from "../../api/pod-spec.ts";
import { bindAddresses } from "../../api/validate/ports.ts";
import { familyOf, type Ip, isLoopback } from "../../core/address.ts";
import { type LoopbackRedirect, redirectedTo } from "../../network/model/desired.ts";
import { choosePort } from "../published/choose-port.ts";
import type { PublishedPlan } from "../published/published-plan.ts";
import type { PortsSnapshot } from "../published/ports-snapshot.ts";
import type { HostPorts } from "../published/store.ts";
import { containerWords } from "../published/publish-words.ts";

/** How ports on the host's loopback are reached when the runtime holds them. */
export interface LoopbackPlan {
  /** podnetd's own ports. Each leads to the container. */
  readonly forwarders: readonly PublishedPlan[];
  /** From the runtime's ports to podnetd's. */
  readonly redirects: readonly LoopbackRedirect[];
}

/**
 * The loopback address at which a port is reached that is published at an address; undefined where
 * it is not.
 */
function loopbackOf(hostIp: Ip): Ip | undefined {
  if (isLoopback(hostIp)) return hostIp;
  return hostIp === "0.0.0.0" || hostIp === "::" ? redirectedTo[familyOf(hostIp)] : undefined;
}

/** The ports that the planner has to choose for `planLoopback`, as specs. */
export const forwarderSpecs = (specs: readonly PortSpec[]): readonly PortSpec[] =>
  specs.flatMap((spec) =>
    spec.protocol === "sctp"
      ? []
      : bindAddresses(spec).flatMap((ip) =>
          loopbackOf(ip) === undefined
            ? []
            : { ...spec, hostIp: redirectedTo[familyOf(ip)], hostPort: 0 },
        ),
  );

/**
 * Chooses a port of podnetd's for each loopback port that is published; undefined where nothing is.
 * Without firewall rules nothing can be redirected. ::1 is redirected to containers with an IPv6
 * address: only then the network has rules of IPv6. Pure. Throws `PORTS_EXHAUSTED`.
 */
export function planLoopback(
  published: readonly PublishedPlan[],
  snapshot: PortsSnapshot,
): LoopbackPlan | undefined {
  if (!snapshot.firewall) return undefined;
  const mine: HostPorts[] = published.flatMap(({ protocol, hostPort, count, at }) =>
    at.map(({ hostIp }) => ({ protocol, hostIp, hostPort, count })),
  );
  const forwarders: PublishedPlan[] = [];
  const redirects: LoopbackRedirect[] = [];
  for (const [i, { protocol, hostPort, podPort, count, at }] of published.entries())
    for (const { hostIp, podIp } of at) {
      const from = loopbackOf(hostIp);
      const family = familyOf(hostIp);
      const to = redirectedTo[family];
      if (from === undefined || protocol === "sctp" || snapshot.hostAddresses[to] !== true)
        continue;
      if (family === 6 && familyOf(podIp) !== 6) continue;
      const wanted = { protocol, hostIp: to, podPort, count, at: [{ hostIp: to, podIp }] };
      const chosen = choosePort(
        { ...wanted, hostPort: 0 },
        snapshot,
        mine,
        containerWords.entry(i),
      );
      mine.push({ protocol, hostIp: to, hostPort: chosen, count });
      forwarders.push({ ...wanted, hostPort: chosen });
      for (let n = 0; n < count; n++)
        redirects.push({ protocol, hostIp: from, hostPort: hostPort + n, toPort: chosen + n });
    }
  return forwarders.length === 0 ? undefined : { forwarders, redirects };
}
