import type { Ip } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { Change } from "../model/change.ts";
import type { FragmentKey, PluggedFragment } from "../model/desired.ts";
import type { Decisions } from "../../policy/compile.ts";
import { type Element, elementId } from "../model/nftables-sets.ts";
import { parseOwner } from "../model/ownership.ts";
import type { Memory } from "../kernel/memory.ts";
import {
  type Denied,
  denialSets,
  type ListedDenial,
  parseDenials,
  placeDenials,
} from "./nftables/denials.ts";
import type { MarkedOwner } from "./nftables/elements.ts";
import { type GuardedDriver, isOf, type PortTarget } from "./guarded.ts";
import { NftablesDriver } from "./nftables/driver.ts";
import { type Learned, learnedSets, learnElements, parseLearned } from "./nftables/learn-table.ts";
import { policedPortElements } from "./nftables/policed-ports.ts";
import { bridgeOf, holderElement, policyChains, policyElements } from "./nftables/policy-table.ts";
import type { RuleTable } from "./nftables/rule-table.ts";

/**
 * What decides about the flows of a pod or container; undefined where no policy does. It is asked
 * whenever its rules are compared, for it changes with other pods, and not with its own plan.
 */
export type PolicyOf = (owner: FragmentKey) => Decisions | undefined;

/** Below the ports that kernels choose for connections, and no service's. */
export const usualRelayPort = 15_443;

/** A driver of pods that have policies. */
export interface PolicedDriver extends GuardedDriver {
  /**
   * The changes that give these pods and containers the rules of their policies, and no other
   * rules. Throws as `comparePods`.
   */
  comparePolicies(fragments: readonly PluggedFragment[], signal: AbortSignal): Promise<Change[]>;
  /**
   * The changes that remove the policies of the target's ports, or else of all that its owner has.
   */
  comparePolicyRemoval(target: Omit<PortTarget, "tap">, signal: AbortSignal): Promise<Change[]>;
  /**
   * Whether a pod or container on that bridge, or on any, has rules of a policy, as far as was
   * looked.
   */
  polices(bridge?: IfName): boolean;
  /**
   * What policies have denied of pods and containers that are there, by rule; by one listing of
   * denials alone for each family. Throws `FIREWALL_FAILED`.
   */
  denials(): Promise<readonly Denied<FragmentKey>[]>;
  /** Who has an address on a bridge, of those that have rules of a policy, as far as was looked. */
  holderAt(bridge: IfName, address: Ip): FragmentKey | undefined;
  /** The changes by which this pod's connections are noted; without a pod none are. */
  compareLearning(pod: PluggedFragment | undefined, signal: AbortSignal): Promise<Change[]>;
  /** What is noted, by one listing for each family and kind. Throws `FIREWALL_FAILED`. */
  learned(): Promise<readonly Learned[]>;
}

export interface Policing {
  readonly driver: GuardedDriver;
  /** Of flows, of what passes between the ports of a bridge, and of what is learned. */
  readonly tables: Readonly<Record<"flows" | "ports" | "learn", RuleTable>>;
  readonly memory: Memory;
  readonly policyOf: PolicyOf;
  readonly relayPort: number;
}

/**
 * A driver whose pods have policies as well: their tables are there from the first pod with a
 * policy on, whichever driver writes the other rules. Pods without a policy cost it nothing.
 */
export function policed({ driver, tables, memory, policyOf, relayPort }: Policing): PolicedDriver {
  // Each port's elements are its own: one port comes, is looked at or goes without the others.
  const none = { ofNetwork: () => [], ofOverlay: () => [] };
  const common = { memory, configured: false, ports: true, ...none };
  const { flows } = tables;
  const policies = new NftablesDriver({
    ...common,
    table: flows,
    ofPod: (pod) => policyElements(pod, policyOf(pod), relayPort),
    chainsOf: (pod) => policyChains(policyOf(pod), relayPort),
  });
  const between = new NftablesDriver({
    ...common,
    table: tables.ports,
    ofPod: (pod) => policedPortElements(pod, policyOf(pod)),
  });
  const learning = new NftablesDriver({ ...common, table: tables.learn, ofPod: learnElements });
  const compareUnlearned = async (
    removed: (owner: MarkedOwner) => boolean,
    signal: AbortSignal,
  ): Promise<Change[]> =>
    memory.madeTable(tables.learn.model.name) ? learning.compareRemoval(removed, signal) : [];
  const parts = [
    { part: between, table: tables.ports },
    { part: policies, table: flows },
  ];
  const isMade = ({ model, exists }: RuleTable): boolean => exists || memory.madeTable(model.name);
  /** Of these, the pods and containers that have rules of a table, or may have some. */
  const some = (
    fragments: readonly PluggedFragment[],
    table: RuleTable,
  ): readonly PluggedFragment[] =>
    isMade(table) ? fragments : fragments.filter((fragment) => policyOf(fragment) !== undefined);
  const compareOne = async (
    part: NftablesDriver,
    [only, ...others]: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<Change[]> => {
    if (only === undefined) return [];
    return others.length === 0
      ? part.comparePod(only, signal)
      : part.comparePods([only, ...others], signal);
  };
  /** Bridges on which no pod has a policy any more after these changes: the filter goes last. */
  const unfiltered = (changes: readonly Change[]): Change[] => {
    const change = changes.find(
      (each) => each.kind === "nftables" && each.table === flows.model.name,
    );
    if (change?.kind !== "nftables") return [];
    const removed = change.base === "delete" ? flows.elements.all() : change.remove;
    const gone = new Set(removed.map(elementId));
    const kept = new Set(change.add.map(bridgeOf));
    return [...new Set(removed.map(bridgeOf))]
      .filter((name) => !kept.has(name))
      .filter((name) => flows.elements.at(name).every((element) => gone.has(elementId(element))))
      .map((name) => ({ kind: "end-bridge-filter", name }));
  };
  const compare: PolicedDriver["comparePolicies"] = async (fragments, signal) => {
    const changes: Change[] = [];
    for (const { part, table } of parts)
      changes.push(...(await compareOne(part, some(fragments, table), signal)));
    return [...changes, ...unfiltered(changes)];
  };
  const compareRemoval = async (
    removed: (owner: MarkedOwner) => boolean,
    signal: AbortSignal,
  ): Promise<Change[]> => {
    const changes: Change[] = [];
    // A podnetd that lost its state has left tables that nothing remembers: a sweep looks for them.
    const sweeps = removed({ kind: "pod", key: "", mark: "" });
    for (const { part, table } of parts)
      if (sweeps || isMade(table)) changes.push(...(await part.compareRemoval(removed, signal)));
    return [...changes, ...unfiltered(changes)];
  };
  return {
    ...driver,
    comparePolicies: compare,
    comparePolicyRemoval: (target, signal) => compareRemoval(isOf(target), signal),
    polices: (bridge) =>
      bridge === undefined ? flows.exists : flows.elements.at(bridge).length > 0,
    denials: () => countedDenials(flows),
    holderAt: (bridge, address) => {
      const found = flows.elements.get(elementId(holderElement(bridge, address)));
      return found && ownerIn(found);
    },
    deviating: async (fragments, signal) => {
      const found = new Set(await driver.deviating(fragments, signal));
      for (const { part, table } of parts) {
        const looked = some(fragments, table);
        if (looked.length === 0) continue;
        for (const fragment of await part.deviating(looked, signal)) found.add(fragment);
      }
      return fragments.filter((fragment) => found.has(fragment));
    },
    // Policies go last.
    compareRemoval: async (removed, signal) => [
      ...(await driver.compareRemoval(removed, signal)),
      ...(await compareRemoval(removed, signal)),
      ...(await compareUnlearned(removed, signal)),
    ],
    compareLearning: (pod, signal) =>
      pod === undefined
        ? compareUnlearned(() => true, signal)
        : learning.comparePods([pod], signal),
    learned: async () => {
      const texts: (string | undefined)[] = [];
      for (const set of learnedSets) texts.push(await tables.learn.counted(set));
      return texts.flatMap((text) => (text === undefined ? [] : parseLearned(text)));
    },
    describe: (fragment) => [
      ...(fragment.kind === "network" ? [] : parts.flatMap(({ part }) => part.describe(fragment))),
      ...driver.describe(fragment),
    ],
  };
}

async function countedDenials(flows: RuleTable): Promise<readonly Denied<FragmentKey>[]> {
  const listed: ListedDenial[] = [];
  const holders = holdersIn(flows);
  for (const set of denialSets) {
    const text = await flows.counted(set);
    const some = text === undefined ? [] : parseDenials(text);
    const { stale } = placeDenials(some, holders);
    if (stale.length > 0) await flows.discount(set, stale);
    listed.push(...some);
  }
  return placeDenials(listed, holders).denied;
}

/** Who has which number there. */
function holdersIn({ elements }: RuleTable): ReadonlyMap<string, FragmentKey> {
  const holders = new Map<string, FragmentKey>();
  for (const element of elements.all()) {
    const owner = element.set.startsWith("holder") ? ownerIn(element) : undefined;
    if (owner !== undefined) holders.set(element.value ?? "", owner);
  }
  return holders;
}

function ownerIn({ owner }: Element): FragmentKey | undefined {
  const { kind, key = "" } = parseOwner(owner) ?? {};
  return kind === "pod" || kind === "attachment" ? { kind, key } : undefined;
}
