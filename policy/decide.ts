import type { Ip } from "../core/address.ts";
import { isInternal } from "../core/special-addresses.ts";
import type { DecisionList, Entry } from "./compile.ts";
import { type DomainName, matchesDomain } from "./domain.ts";
import type { Protocol, Service } from "./model.ts";
import { inRanges } from "./ranges.ts";

/** One flow, as far as it is known: of egress the destination, of ingress the source and port. */
export interface Flow {
  /** The other side's address; absent while only its name is known. */
  readonly ip?: Ip;
  readonly protocol: Protocol;
  /** The port that the connection is opened to; absent for ICMP. */
  readonly port?: number;
  /**
   * The name that the connection says: in SNI, in `Host`, or in the question that is asked about
   * it. Null when it says none, absent before it has said anything.
   */
  readonly name?: DomainName | null;
  /** Names for which the resolver gave this pod this address. */
  readonly answered?: readonly DomainName[];
}

/**
 * `relay`: the connection goes to the relay, which asks again with the name that it says.
 * `resolver`: the network's resolver answers in place of the destination.
 */
type Verdict = "allow" | "deny" | "relay" | "resolver";

/** The answer about one flow. */
export interface Decision {
  readonly verdict: Verdict;
  readonly policy: string;
  readonly rule: string;
  readonly reason: string;
  /** What the deciding rule looked at: an allowed name is reached at that name's own addresses. */
  readonly by: "address" | "name" | "any";
}

/** TCP ports whose connections say a name first: the relay reads it. */
export const relayPorts: readonly number[] = [80, 443];
const quicPort = 443;

const isRelayed = ({ protocol, port }: Flow): boolean =>
  protocol === "tcp" && port !== undefined && relayPorts.includes(port);
/** QUIC (RFC 9001) says its name in a packet that is encrypted with keys from its own header. */
const isQuic = ({ protocol, port }: Flow): boolean => protocol === "udp" && port === quicPort;

/**
 * Decides about a flow: the kernel's rules, the relay, the resolver and `podnet policy explain` all
 * give this answer. Pure.
 */
export function decide(list: DecisionList, flow: Flow): Decision {
  let hidden = false;
  for (const entry of list.entries) {
    if (!serves(entry.services, flow)) continue;
    if (entry.to === undefined) return answer(entry, "any");
    if (flow.ip !== undefined && inRanges(entry.to.ranges, flow.ip))
      return answer(entry, "address");
    if (entry.to.domains.length === 0) continue;
    const decision = byName(entry, entry.to.domains, flow);
    if (decision !== undefined) return decision;
    hidden ||= isQuic(flow);
  }
  const last = answer(list.otherwise, "any");
  return hidden && last.verdict === "deny" ? { ...last, reason: quicReason } : last;
}

const quicReason = "QUIC hides the name: use TCP";

type Words = Pick<Entry, "policy" | "rule" | "reason">;

const answer = (
  { policy, rule, reason, verdict }: Words & Pick<Entry, "verdict">,
  by: Decision["by"],
): Decision => ({ verdict, policy, rule, reason, by });

/**
 * What an entry with domains decides about a flow; undefined when the next entry decides. Names are
 * for addresses outside: inside, `cidrs` and `pods` decide, so that no name leads there.
 */
function byName(
  entry: Entry,
  domains: NonNullable<Entry["to"]>["domains"],
  flow: Flow,
): Decision | undefined {
  if (flow.ip !== undefined && isInternal(flow.ip)) return undefined;
  const decision = answer(entry, "name");
  const denied = (reason: string): Decision | undefined =>
    entry.verdict === "deny" ? { ...decision, reason } : undefined;
  const matches = (name: DomainName): boolean =>
    domains.some((pattern) => matchesDomain(pattern, name));
  if (isRelayed(flow)) {
    if (flow.name === undefined) return { ...decision, verdict: "relay" };
    // What says no name may be any, so a rule that denies names denies it.
    if (flow.name === null) return denied("it does not say its name");
    return matches(flow.name) ? decision : undefined;
  }
  if (isQuic(flow)) return denied(quicReason);
  const names = [...(flow.name ? [flow.name] : []), ...(flow.answered ?? [])];
  if (names.some(matches)) return decision;
  // An address that was never answered may be of any name.
  return names.length === 0 && flow.ip !== undefined
    ? denied("the resolver never answered this address")
    : undefined;
}

/** Whether one of the services has the flow's protocol and port. A flow without port has none. */
const serves = (services: readonly Service[] | undefined, { protocol, port }: Flow): boolean =>
  services === undefined ||
  services.some(
    (service) =>
      service.protocol === protocol &&
      (service.ports === undefined ||
        (port !== undefined && port >= service.ports.first && port <= service.ports.last)),
  );
