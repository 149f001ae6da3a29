import { type Ip, ipOf } from "../core/address.ts";
import type { Flow } from "../linux/conntrack/flow.ts";
import type { Change } from "./change.ts";
import type { PodFragment, PortDesired, PublishedDesired } from "./desired.ts";

/** Numbers in the IP header. */
const protocols = { tcp: 6, udp: 17, sctp: 132 } as const;

/**
 * What the kernel knows of conversations with the addresses of ports that go: whoever has an address next would go on
 * with them. A flow that is translated needs no rule once it has begun, and lives as long as anybody speaks.
 */
export const forgetFlows = (ports: readonly PortDesired[]): Change[] =>
  [...new Set(ports.flatMap(({ guestAddresses }) => guestAddresses.map(ipOf)))].map((ip) => ({
    kind: "forget-flows",
    ip,
  }));

/** The same of those alone that came by what is not published any more. */
export function forgetWithdrawn({ published = [], withdrawn = [] }: PodFragment): Change[] {
  const byIp = new Map<Ip, PublishedDesired[]>();
  const again = new Set(published.map((each) => JSON.stringify(each)));
  const gone = withdrawn.filter((each) => !again.has(JSON.stringify(each)));
  for (const each of gone) byIp.set(each.podIp, [...(byIp.get(each.podIp) ?? []), each]);
  return Array.from(byIp, ([ip, published]) => ({ kind: "forget-flows", ip, published }));
}

/** Whether a flow is one that such an entry has translated. */
export function cameBy(
  { protocol, original, reply }: Flow,
  { protocol: name, hostIp, hostPort, podIp, podPort, count }: PublishedDesired,
): boolean {
  const { destinationPort } = original;
  if (protocol !== protocols[name] || reply.source !== podIp || destinationPort === undefined)
    return false;
  // One that was sent to the pod itself was not.
  if (original.destination === podIp) return false;
  if (hostIp !== undefined && original.destination !== hostIp) return false;
  const nth = destinationPort - hostPort;
  return nth >= 0 && nth < count && reply.sourcePort === podPort + nth;
}
