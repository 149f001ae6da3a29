import type { Change } from "../model/change.ts";
import type { FragmentKey, PluggedFragment } from "../model/desired.ts";
import type { Decisions } from "../../policy/compile.ts";
import type { Memory } from "../kernel/memory.ts";
import type { MarkedOwner } from "./nftables/elements.ts";
import type { GuardedDriver } from "./guarded.ts";
import { NftablesDriver } from "./nftables/driver.ts";
import { policyChains, policyElements } from "./nftables/policy-table.ts";
import type { RuleTable } from "./nftables/rule-table.ts";

/**
 * What decides about the flows of a pod or container; undefined where no policy does. It is asked
 * whenever its rules are compared, for it changes with other pods, and not with its own plan.
 */
export type PolicyOf = (owner: FragmentKey) => Decisions | undefined;

/** A driver of pods that have policies. */
export interface PolicedDriver extends GuardedDriver {
  /**
   * The changes that give these pods and containers the rules of their policies, and no other
   * rules: in one commit. Throws as `comparePods`.
   */
  comparePolicies(fragments: readonly PluggedFragment[], signal: AbortSignal): Promise<Change[]>;
  /** The changes that remove these owners' policies, and no other rules. */
  comparePolicyRemoval(
    removed: (owner: MarkedOwner) => boolean,
    signal: AbortSignal,
  ): Promise<Change[]>;
}

export interface Policing {
  readonly driver: GuardedDriver;
  readonly table: RuleTable;
  readonly memory: Memory;
  readonly policyOf: PolicyOf;
}

/**
 * A driver whose pods have policies as well: their table is there from the first pod with a policy
 * on, whichever driver writes the other rules. Pods without a policy cost it nothing.
 */
export function policed({ driver, table, memory, policyOf }: Policing): PolicedDriver {
  const policies = new NftablesDriver({
    table,
    memory,
    configured: false,
    ofNetwork: () => [],
    ofPod: (pod) => policyElements(pod, policyOf(pod)),
    chainsOf: (pod) => policyChains(policyOf(pod)),
    ofOverlay: () => [],
  });
  /** Of these, the pods and containers that have rules, or may have some. */
  const some = (fragments: readonly PluggedFragment[]): readonly PluggedFragment[] =>
    memory.madeTable(table.model.name)
      ? fragments
      : fragments.filter((fragment) => policyOf(fragment) !== undefined);
  const compare = async (
    fragments: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<Change[]> => {
    const [only, ...others] = some(fragments);
    if (only === undefined) return [];
    return others.length === 0
      ? policies.comparePod(only, signal)
      : policies.comparePods([only, ...others], signal);
  };
  const compareRemoval: PolicedDriver["comparePolicyRemoval"] = async (removed, signal) =>
    memory.madeTable(table.model.name) ? policies.compareRemoval(removed, signal) : [];
  return {
    ...driver,
    comparePolicies: compare,
    comparePolicyRemoval: compareRemoval,
    deviating: async (fragments, signal) => {
      const looked = some(fragments);
      const found = new Set([
        ...(looked.length === 0 ? [] : await policies.deviating(looked, signal)),
        ...(await driver.deviating(fragments, signal)),
      ]);
      return fragments.filter((fragment) => found.has(fragment));
    },
    // Policies go last.
    compareRemoval: async (removed, signal) => [
      ...(await driver.compareRemoval(removed, signal)),
      ...(await compareRemoval(removed, signal)),
    ],
    describe: (fragment) => [
      ...(fragment.kind === "network" ? [] : policies.describe(fragment)),
      ...driver.describe(fragment),
    ],
  };
}
