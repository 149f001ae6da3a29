import { createHash } from "node:crypto";
import { type Family, familyOf } from "../../../core/address.ts";
import { type IpRange, ipRangeText } from "../../../core/ip-range.ts";
import { internalRanges } from "../../../core/special-addresses.ts";
import type { DecisionList, Entry } from "../../../policy/compile.ts";
import type { Protocol, Service } from "../../../policy/model.ts";
import type { PolicyChain } from "../../model/rules.ts";
import { tableMark } from "./base.ts";
import { deniedChain, type Direction, ruleNumber } from "./denials.ts";

/**
 * The chain that decides about a pod's flows as `decide` of `policy/` does: the first rule that
 * matches. A chain that returns lets the flow pass. Pure.
 *
 * No flow passes here by a rule that allows names: what the relay takes (`relayChain`) does not
 * come by. A rule that denies names denies every address outside, for its names are not known.
 */
export function policyChain(list: DecisionList, direction: Direction): PolicyChain {
  const known = chains[direction].get(list);
  if (known !== undefined) return known;
  const chain = named(ruled(list, direction).map(({ rule }) => rule));
  chains[direction].set(list, chain);
  return chain;
}

/**
 * The entry that each rule of a list's chain carries out, in their order; undefined for one that
 * carries out none. Pure.
 */
export const chainEntries = (
  list: DecisionList,
  direction: Direction,
): readonly (Entry | undefined)[] => ruled(list, direction).map(({ entry }) => entry);

/** The rules of a chain, with the entries that they carry out. */
function ruled(
  list: DecisionList,
  direction: Direction,
): readonly { readonly rule: string; readonly entry?: Entry }[] {
  const side = direction === "egress" ? "daddr" : "saddr";
  const entries = [...list.entries, list.otherwise];
  return [
    { rule: midway },
    ...entries.flatMap((entry) => rulesOf(entry, side, direction).map((rule) => ({ rule, entry }))),
  ];
}

/** As above, of the chain that leads to the relay. */
export const relayEntries = ({ entries }: DecisionList): readonly Entry[] =>
  entries.flatMap((entry) => relayRules(entry, 0).map(() => entry));

/**
 * The chain that leads a pod's connections to the relay, at a port of this host: those for which
 * `decide` says `relay`, as long as they have not said a name. A rule for their address that stands
 * before decides by itself. It is asked about connections outside to ports that the relay reads.
 * Undefined where no rule has names. Pure.
 */
export function relayChain({ entries }: DecisionList, port: number): PolicyChain | undefined {
  const last = entries.findLastIndex(({ to }) => (to?.domains.length ?? 0) > 0);
  const rules = entries.slice(0, last + 1).flatMap((entry) => relayRules(entry, port));
  return rules.length === 0 ? undefined : named(rules);
}

function named(rules: readonly string[]): PolicyChain {
  const digest = createHash("sha256").update(rules.join("\n")).digest("hex");
  return { name: `${chainPrefix}${digest.slice(0, 16)}`, rules };
}

/** By lists: pods that share decisions share their chains, too. */
const chains: Readonly<Record<Direction, WeakMap<DecisionList, PolicyChain>>> = {
  egress: new WeakMap(),
  ingress: new WeakMap(),
};

/**
 * A connection whose beginning the kernel has not seen has no direction: whichever end sends next
 * would be taken for the one that opened it. That was so before frames of its bridge passed the
 * rules, and is so after its entry was deleted because a policy does not allow it any more.
 */
const midway = "ct state new tcp flags & (syn | ack) != syn counter reject with tcp reset";

/** Every chain of decisions is named so, and no other chain is. */
export const chainPrefix = "policy_";

/**
 * The comments of a chain's rules, in order. They mark the chain as ours, and show whether a rule
 * is missing.
 */
export const policyComments = (chain: string, count: number): readonly string[] =>
  Array.from({ length: count }, (_, i) => `${tableMark}${chain}:${i + 1}/${count}`);

function relayRules({ to, services }: Entry, port: number): readonly string[] {
  const served = servicesOf(services, undefined).filter(
    ({ protocol }) => protocol === undefined || protocol === "tcp",
  );
  const ways = (peers: readonly Peer[], ...actions: readonly string[]): string[] =>
    peers.flatMap((peer) =>
      served.flatMap((service) =>
        matches(peer, service).map((match) => [...match, ...actions].join(" ")),
      ),
    );
  const direct = ways(to === undefined ? anywhere : peersOf(to.ranges, "daddr"), "counter return");
  if (to === undefined || to.domains.length === 0) return direct;
  return [...direct, ...ways(anywhere, "meta l4proto tcp", `counter redirect to :${port}`)];
}

function rulesOf(
  { to, services, verdict, policy, rule }: Entry,
  side: "daddr" | "saddr",
  direction: Direction,
): readonly string[] {
  // (Only the resolver of the network answers names: what goes elsewhere is denied.)
  const allows = verdict === "allow";
  const action = allows ? "counter return" : deny(direction, ruleNumber(direction, policy, rule));
  const peers =
    to === undefined
      ? anywhere
      : [...peersOf(to.ranges, side), ...(!allows && to.domains.length > 0 ? outside : [])];
  return peers.flatMap((peer) =>
    servicesOf(services, peer.family).flatMap((service) =>
      matches(peer, service).map((match) => [...match, action].join(" ")),
    ),
  );
}

/** What a rule compares with the members of a list; absent: it compares nothing. */
interface Comparison {
  readonly field: string;
  /** It matches what none of the members is. */
  readonly none?: true;
  readonly members: readonly string[];
}

interface Peer {
  /** Absent: of both families. */
  readonly family?: Family;
  readonly compare?: Comparison;
}

const anywhere: readonly Peer[] = [{}];

const comparison = (field: string, texts: readonly string[]): Comparison => ({
  field,
  members: [...new Set(texts)],
});

const peersOf = (ranges: readonly IpRange[], side: string): readonly Peer[] =>
  ([4, 6] as const).flatMap((family): readonly Peer[] => {
    const own = ranges.filter(({ first }) => familyOf(first) === family);
    const field = `${family === 4 ? "ip" : "ip6"} ${side}`;
    return own.length === 0 ? [] : [{ family, compare: comparison(field, own.map(ipRangeText)) }];
  });

/** Destinations to which a public name may lead (`isInternal`). */
const outside: readonly Peer[] = peersOf(internalRanges, "daddr").map(({ family, compare }) => ({
  ...(family === undefined ? {} : { family }),
  ...(compare === undefined ? {} : { compare: { ...compare, none: true } }),
}));

interface Matched {
  /** Absent: every protocol. */
  readonly protocol?: Protocol;
  readonly compare?: Comparison;
}

function servicesOf(
  services: readonly Service[] | undefined,
  family: Family | undefined,
): readonly Matched[] {
  if (services === undefined) return [{}];
  const ofProtocol = (name: string): Comparison => comparison("meta l4proto", [name]);
  return [...Map.groupBy(services, ({ protocol }) => protocol)].flatMap(
    ([protocol, some]): readonly Matched[] => {
      if (protocol === "icmp")
        return icmpOf(family).map((name) => ({ protocol, compare: ofProtocol(name) }));
      const ports = some.map((service) => service.ports);
      if (ports.includes(undefined)) return [{ protocol, compare: ofProtocol(protocol) }];
      const texts = ports.flatMap((port) =>
        port === undefined
          ? []
          : [port.first === port.last ? `${port.first}` : `${port.first}-${port.last}`],
      );
      return [{ protocol, compare: comparison(`${protocol} dport`, texts) }];
    },
  );
}

/** Up to so many rules, each with single members, take the place of a rule with sets. */
const mostSingle = 4;

/**
 * What rules match for a peer and a service. Few members are rules of their own: libnftables reads
 * the sets of all tables before it changes elements, so that a set in each chain would make every
 * change on the host cost more with each policy. More members are an anonymous set, in which nft
 * joins those that overlap.
 */
function matches({ compare: peer }: Peer, { compare: service }: Matched): readonly string[][] {
  const all = [peer, service].filter((each) => each !== undefined);
  const rules = all.reduce((product, { members }) => product * members.length, 1);
  const alternatives = ({ field, members, none }: Comparison): readonly string[] => {
    if (none === true) return [`${field} != { ${members.join(", ")} }`];
    return rules <= mostSingle || members.length === 1
      ? members.map((member) => `${field} ${member}`)
      : [`${field} { ${members.join(", ")} }`];
  };
  return all.reduce<readonly string[][]>(
    (found, each) =>
      found.flatMap((match) => alternatives(each).map((alternative) => [...match, alternative])),
    [[]],
  );
}

/** Rules that match addresses to which no public name leads. */
export const insideMatches: readonly string[] = peersOf(internalRanges, "daddr").flatMap((peer) =>
  matches(peer, {}).map((match) => match.join(" ")),
);

const icmpOf = (family: Family | undefined): readonly string[] => [
  ...(family === 6 ? [] : ["icmp"]),
  ...(family === 4 ? [] : ["icmpv6"]),
];

/** Whoever is denied by which rule is counted by the chain that answers for all policies. */
const deny = (direction: Direction, number: number): string =>
  `meta mark set 0x${number.toString(16)} goto ${deniedChain(direction)}`;
