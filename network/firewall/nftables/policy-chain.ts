import { createHash } from "node:crypto";
import { type Family, familyOf } from "../../../core/address.ts";
import { type IpRange, ipRangeText } from "../../../core/ip-range.ts";
import type { DecisionList, Entry } from "../../../policy/compile.ts";
import type { Protocol, Service } from "../../../policy/model.ts";
import type { PolicyChain } from "../../model/rules.ts";
import { tableMark } from "./base.ts";

/** Which end of a flow a list of decisions names: of egress the destination, else the source. */
export type Direction = "egress" | "ingress";

/**
 * The chain that decides about a pod's flows as `decide` of `policy/` does: the first rule that
 * matches. A chain that returns lets the flow pass. Pure.
 *
 * Names decide later than addresses: no flow passes by a rule that allows names, until the resolver
 * or the relay has opened it, and a rule that denies names denies every address.
 */
export function policyChain(list: DecisionList, direction: Direction): PolicyChain {
  const side = direction === "egress" ? "daddr" : "saddr";
  const rules = [...list.entries, list.otherwise].flatMap((entry) => rulesOf(entry, side));
  const digest = createHash("sha256").update(rules.join("\n")).digest("hex");
  return { name: `${chainPrefix}${digest.slice(0, 16)}`, rules };
}

/** Every chain of decisions is named so, and no other chain is. */
export const chainPrefix = "policy_";

/**
 * The comments of a chain's rules, in order. They mark the chain as ours, and show whether a rule
 * is missing.
 */
export const policyComments = (chain: string, count: number): readonly string[] =>
  Array.from({ length: count }, (_, i) => `${tableMark}${chain}:${i + 1}/${count}`);

function rulesOf({ to, services, verdict }: Entry, side: "daddr" | "saddr"): readonly string[] {
  // (Only the resolver of the network answers names: what goes elsewhere is denied.)
  const allows = verdict === "allow";
  const everywhere = to === undefined || (!allows && to.domains.length > 0);
  const peers = everywhere ? anywhere : peersOf(to.ranges, side);
  return peers.flatMap(({ family, match }) =>
    servicesOf(services, family).flatMap(({ protocol, match: service }) =>
      actions(allows, protocol).map((action) => [...match, ...service, action].join(" ")),
    ),
  );
}

interface Peer {
  /** Absent: of both families. */
  readonly family?: Family;
  readonly match: readonly string[];
}

const anywhere: readonly Peer[] = [{ match: [] }];

const peersOf = (ranges: readonly IpRange[], side: string): readonly Peer[] =>
  ([4, 6] as const).flatMap((family): readonly Peer[] => {
    const own = ranges.filter(({ first }) => familyOf(first) === family);
    const match = [family === 4 ? "ip" : "ip6", side, anyOf(own.map(ipRangeText))];
    return own.length === 0 ? [] : [{ family, match }];
  });

interface Matched {
  /** Absent: every protocol. */
  readonly protocol?: Protocol;
  readonly match: readonly string[];
}

function servicesOf(
  services: readonly Service[] | undefined,
  family: Family | undefined,
): readonly Matched[] {
  if (services === undefined) return [{ match: [] }];
  return [...Map.groupBy(services, ({ protocol }) => protocol)].flatMap(
    ([protocol, some]): readonly Matched[] => {
      if (protocol === "icmp")
        return icmpOf(family).map((name) => ({ protocol, match: ["meta l4proto", name] }));
      const ports = some.map((service) => service.ports);
      if (ports.includes(undefined)) return [{ protocol, match: ["meta l4proto", protocol] }];
      const texts = ports.flatMap((port) =>
        port === undefined
          ? []
          : [port.first === port.last ? `${port.first}` : `${port.first}-${port.last}`],
      );
      return [{ protocol, match: [protocol, "dport", anyOf(texts)] }];
    },
  );
}

const icmpOf = (family: Family | undefined): readonly string[] => [
  ...(family === 6 ? [] : ["icmp"]),
  ...(family === 4 ? [] : ["icmpv6"]),
];

/** A denial is answered at once: a connection that hangs does not say why. */
function actions(allows: boolean, protocol: Protocol | undefined): readonly string[] {
  if (allows) return ["counter return"];
  const reset = "counter reject with tcp reset";
  const unreachable = "counter reject with icmpx admin-prohibited";
  if (protocol === "tcp") return [reset];
  return protocol === undefined ? [`meta l4proto tcp ${reset}`, unreachable] : [unreachable];
}

/** Repeated and overlapping members are one: nft joins them (`auto-merge`). */
const anyOf = (texts: readonly string[]): string => `{ ${[...new Set(texts)].join(", ")} }`;
