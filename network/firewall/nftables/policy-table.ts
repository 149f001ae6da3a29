import { familyOf, type Ip, ipOf } from "../../../core/address.ts";
import type { IfName } from "../../../core/names.ts";
import type { Decisions, Entry } from "../../../policy/compile.ts";
import { relayPorts } from "../../../policy/decide.ts";
import type { PluggedFragment } from "../../model/desired.ts";
import { type Element, policySets, type SetName } from "../../model/nftables-sets.ts";
import { publishedMark } from "../../model/ownership.ts";
import type { PolicyChain } from "../../model/rules.ts";
import type { TableModel } from "./base.ts";
import { deniedChain, deniedRules, type Direction, directions, holderNumber } from "./denials.ts";
import {
  chainEntries,
  chainPrefix,
  insideMatches,
  policyChain,
  relayChain,
  relayEntries,
} from "./policy-chain.ts";

/**
 * Policies of pods, with either driver. Each pod's addresses lead to the chain of its decisions:
 * what a packet and a change cost does not grow with the pods. A pod is known by its bridge and
 * address, for the guard at the ports drops what it sends with other addresses.
 *
 * The first direction of a flow is decided about packet by packet, so that a changed policy holds
 * for flows that exist as well. Answers to a flow that passes are not looked at, and neither are
 * errors about it.
 *
 * Connections whose name decides go to the relay on this host instead, by the first packet of each.
 * What is addressed to the host itself does not: the relay would reach more of it than pods do.
 * Neither does what is addressed inside: no name leads there.
 */
const tableOf = (logs: boolean): TableModel => ({
  name: "inet podnet_policy",
  sets: Object.keys(policySets) as SetName[],
  chains: {
    relaying: {
      // Before published ports, of either driver, are translated.
      hook: { type: "nat", hook: "prerouting", priority: -110 },
      rules: [
        `tcp dport != { ${relayPorts.join(", ")} } return`,
        "meta l4proto != tcp return",
        "fib daddr type local return",
        ...insideMatches.map((match) => `${match} return`),
        "iifname . ip saddr vmap @relay4",
        "iifname . ip6 saddr vmap @relay6",
      ],
    },
    forward: {
      // After the guard, and before the rules that translate and accept.
      hook: { type: "filter", hook: "forward", priority: -5 },
      rules: [
        "ct direction reply return",
        "ct state related meta l4proto { icmp, icmpv6 } return",
        // Neighbors of one bridge look for each other; the guard has looked at what they say.
        "icmpv6 type { 133, 135, 136 } return",
        "iifname . ip saddr vmap @egress4",
        "iifname . ip6 saddr vmap @egress6",
        "oifname . ip daddr vmap @ingress4",
        "oifname . ip6 daddr vmap @ingress6",
      ],
    },
    ...Object.fromEntries(
      directions.map((direction) => [
        deniedChain(direction),
        { rules: deniedRules(direction, logs) },
      ]),
    ),
  },
  owns: chainPrefix,
});

export const policyTable: TableModel = {
  ...tableOf(true),
  without: { does: "live verdicts of policies", table: tableOf(false) },
};

/** The chains of a pod's or container's decisions. Pure. */
export function policyChains(
  decisions: Decisions | undefined,
  relayPort: number,
): readonly PolicyChain[] {
  if (decisions === undefined) return [];
  const all = Object.values(chainsOf(decisions, relayPort)).flatMap((chain) => chain ?? []);
  return [...new Map(all.map((chain) => [chain.name, chain])).values()];
}

const chainsOf = (
  { egress, ingress }: Decisions,
  relayPort: number,
): Readonly<Record<Direction, PolicyChain>> & { readonly relay: PolicyChain | undefined } => ({
  egress: policyChain(egress, "egress"),
  ingress: policyChain(ingress, "ingress"),
  relay: relayChain(egress, relayPort),
});

/**
 * The entry that a rule of one of these decisions' chains carries out, by its place from 1;
 * undefined for another chain, and for a rule that carries out none. Pure.
 */
export function entryAt(
  decisions: Decisions,
  relayPort: number,
  chain: string,
  place: number,
): Entry | undefined {
  const chains = chainsOf(decisions, relayPort);
  if (chain === chains.egress.name) return chainEntries(decisions.egress, "egress")[place - 1];
  if (chain === chains.ingress.name) return chainEntries(decisions.ingress, "ingress")[place - 1];
  return chain === chains.relay?.name ? relayEntries(decisions.egress)[place - 1] : undefined;
}

/**
 * The elements that lead from the addresses of a pod's ports to its chains, and name the pod to
 * them; each is of its port. Pure.
 */
export function policyElements(
  pod: PluggedFragment,
  decisions: Decisions | undefined,
  relayPort: number,
): Element[] {
  if (decisions === undefined) return [];
  const chains = chainsOf(decisions, relayPort);
  const value = holderNumber(publishedMark(pod));
  const held = addressesOf(pod).map(
    ({ bridge, address, owner }): Element => ({
      ...holderElement(bridge, address),
      value,
      owner,
    }),
  );
  const led = (["egress", "ingress", "relay"] as const).flatMap((which): Element[] => {
    const chain = chains[which];
    if (chain === undefined) return [];
    return addressesOf(pod).map(({ bridge, address, owner }) => ({
      set: `${which}${familyOf(address)}`,
      key: `"${bridge}" . ${address}`,
      value: `jump ${chain.name}`,
      owner,
    }));
  });
  return [...held, ...led];
}

/** The element that has the number of a pod with this address. */
export const holderElement = (bridge: IfName, address: Ip): Pick<Element, "set" | "key"> => ({
  set: `holder${familyOf(address)}`,
  key: `"${bridge}" . ${address}`,
});

/** The bridge that such an element is about. */
export const bridgeOf = ({ key }: Element): IfName => (/^"([^"]*)"/.exec(key)?.[1] ?? "") as IfName;

/** Where a pod is seen from: its bridges, and its addresses there, with the mark of the port. */
export function addressesOf({ ports, sources = [] }: PluggedFragment) {
  return ports.flatMap(({ bridge, tap, guestAddresses, alias: owner }) => [
    ...guestAddresses.map((prefix) => ({ bridge, owner, address: ipOf(prefix) })),
    ...sources.flatMap((source) =>
      source.tap === tap ? [{ bridge, owner, address: source.address }] : [],
    ),
  ]);
}
