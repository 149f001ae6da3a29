import { type Ip, ipOf } from "../../core/address.ts";
import type { Flow } from "../../linux/conntrack/flow.ts";
import {
  type LoopbackRedirect,
  type PluggedFragment,
  type PublishedDesired,
  redirectedTo,
} from "../model/desired.ts";
import type { PolicyOf } from "../firewall/policed.ts";
import type { Change } from "../model/change.ts";
import type { HostConntrack } from "../kernel/kernel.ts";
import type { DecisionList, Decisions } from "../../policy/compile.ts";
import { decide } from "../../policy/decide.ts";
import type { Protocol } from "../../policy/model.ts";

/** Numbers in the IP header. */
const protocols = { tcp: 6, udp: 17, sctp: 132 } as const;

/**
 * Deletes the conntrack entries of pods' addresses that the host translates: the next holder of an
 * address would inherit them. An established connection needs no rule, and lives as long as either
 * end sends. `served`: services may lead to any of them.
 */
export async function endFlows(
  pods: readonly PluggedFragment[],
  conntrack: HostConntrack,
  served: boolean,
): Promise<void> {
  const began = addressesOf(pods);
  const answers = addressesOf(
    served ? pods : pods.filter(({ published }) => published !== undefined),
  );
  await conntrack.forget(await conntrack.flows("original", began));
  await conntrack.forget(await conntrack.flows("reply", answers));
  const redirects = pods.flatMap(({ loopback = [] }) => loopback);
  if (redirects.length === 0) return;
  const local = await conntrack.flows("reply", Object.values(redirectedTo));
  await conntrack.forget(local.filter((flow) => redirects.some((each) => wentBy(flow, each))));
}

/** Whether one of these redirects led a flow to podnetd. */
const wentBy = (
  { protocol, original, reply }: Flow,
  { protocol: name, hostIp, hostPort, toPort }: LoopbackRedirect,
): boolean =>
  protocol === protocols[name] &&
  original.destination === hostIp &&
  original.destinationPort === hostPort &&
  reply.sourcePort === toPort;

const addressesOf = (pods: readonly PluggedFragment[]): readonly Ip[] => [
  ...new Set(
    pods.flatMap(({ ports }) =>
      ports.flatMap(({ guestAddresses }) => guestAddresses.map((prefix) => ipOf(prefix))),
    ),
  ),
];

/**
 * Ends the flows of pods that their policies do not allow any more. Their packets are refused
 * already, but the other end could still send to a pod that is silent. The relay ends its own. The
 * kernel's table is listed as often for many pods as for one.
 */
export async function endDenied(
  pods: readonly PluggedFragment[],
  policyOf: PolicyOf,
  relayPort: number,
  conntrack: HostConntrack,
): Promise<void> {
  const decided = pods.flatMap((pod) => {
    const decisions = policyOf(pod);
    return decisions === undefined ? [] : addressesOf([pod]).map((ip) => ({ ip, decisions }));
  });
  // (Pods on two bridges may have one address.)
  const byAddress = Map.groupBy(decided, ({ ip }) => ip);
  const end = async (
    side: "original" | "reply",
    isDenied: (flow: Flow, decisions: Decisions) => boolean,
  ): Promise<void> => {
    const flows = await conntrack.flows(side, [...byAddress.keys()]);
    await conntrack.forget(
      flows.filter((flow) =>
        byAddress.get(flow[side].source)?.some(({ decisions }) => isDenied(flow, decisions)),
      ),
    );
  };
  const isRelayed = ({ original, reply }: Flow): boolean =>
    reply.sourcePort === relayPort && reply.source !== original.destination;
  // (What the chains see: the destination after it was translated.)
  await end(
    "original",
    (flow, { egress }) => !isRelayed(flow) && denies(egress, flow, flow.reply.source),
  );
  await end("reply", (flow, { ingress }) => denies(ingress, flow, flow.original.source));
}

/** Whether a list does not allow a flow with that other end. */
function denies(list: DecisionList, flow: Flow, ip: Ip): boolean {
  const protocol = policyProtocol(flow.protocol);
  const { sourcePort: port } = flow.reply;
  if (protocol === undefined) return false;
  const known = { ip, protocol, ...(port === undefined ? {} : { port }) };
  return decide(list, known).verdict !== "allow";
}

const policyProtocol = (number: number): Protocol | undefined =>
  (({ 1: "icmp", 6: "tcp", 17: "udp", 58: "icmp", 132: "sctp" }) as const)[number];

/**
 * Ends the flows to addresses that became those of services, begun when they had no holder: the
 * kernel translates only the first packet of a flow, and a client that never pauses would stay with
 * what answered nothing.
 */
export async function endBypassing(
  changes: readonly Change[],
  conntrack: HostConntrack,
): Promise<void> {
  const added = changes.flatMap((change) =>
    change.kind === "nftables"
      ? change.add.flatMap(({ set, key }) =>
          set === "virtual4" || set === "virtual6" ? [key as Ip] : [],
        )
      : [],
  );
  // (The answer to a flow that was translated comes from its backend.)
  await conntrack.forget(await conntrack.flows("reply", added));
}

/** Ends the flows that came by ports not published any more. */
export async function endWithdrawn(pod: PluggedFragment, conntrack: HostConntrack): Promise<void> {
  const { published = [], withdrawn = [] } = pod;
  const again = new Set(published.map((each) => JSON.stringify(each)));
  const gone = withdrawn.filter((each) => !again.has(JSON.stringify(each)));
  const ips = [...new Set(gone.map(({ podIp }) => podIp))];
  const answered = await conntrack.flows("reply", ips);
  await conntrack.forget(answered.filter((flow) => gone.some((each) => cameBy(flow, each))));
}

/** Whether one of these entries has translated a flow. */
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
