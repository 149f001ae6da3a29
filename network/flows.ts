import { ipOf } from "../core/address.ts";
import type { Flow } from "../linux/conntrack/flow.ts";
import type { PluggedFragment, PublishedDesired } from "./desired.ts";
import type { HostConntrack } from "./kernel.ts";

/** Numbers in the IP header. */
const protocols = { tcp: 6, udp: 17, sctp: 132 } as const;

/**
 * Ends the conversations of a pod's addresses that the host translates: whoever has an address next would go on with
 * them. One that has begun needs no rule, and lives as long as anybody speaks.
 */
export async function endFlows(pod: PluggedFragment, conntrack: HostConntrack): Promise<void> {
  const ips = pod.ports.flatMap(({ guestAddresses }) => guestAddresses.map(ipOf));
  const sides =
    pod.published === undefined ? (["original"] as const) : (["original", "reply"] as const);
  for (const ip of new Set(ips))
    for (const side of sides) await conntrack.forget(await conntrack.flows(side, ip));
}

/** The same of those alone that came by what is not published any more. */
export async function endWithdrawn(pod: PluggedFragment, conntrack: HostConntrack): Promise<void> {
  const { published = [], withdrawn = [] } = pod;
  const again = new Set(published.map((each) => JSON.stringify(each)));
  const gone = withdrawn.filter((each) => !again.has(JSON.stringify(each)));
  for (const ip of new Set(gone.map(({ podIp }) => podIp))) {
    const answered = await conntrack.flows("reply", ip);
    await conntrack.forget(answered.filter((flow) => gone.some((each) => cameBy(flow, each))));
  }
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
