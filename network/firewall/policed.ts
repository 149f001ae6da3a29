import type { Change } from "../model/change.ts";
import type { PluggedFragment } from "../model/desired.ts";
import type { Memory } from "../kernel/memory.ts";
import type { FirewallDriver } from "./driver.ts";
import { NftablesDriver } from "./nftables/driver.ts";
import { policyChains, policyElements } from "./nftables/policy-table.ts";
import type { RuleTable } from "./nftables/rule-table.ts";

const hasPolicy = ({ policy }: PluggedFragment): boolean => policy !== undefined;

/**
 * A driver whose pods have policies as well: their table is there from the first pod with a policy
 * on, whichever driver writes the other rules. Pods without a policy cost it nothing.
 */
export function policed(driver: FirewallDriver, table: RuleTable, memory: Memory): FirewallDriver {
  const policies = new NftablesDriver({
    table,
    memory,
    configured: false,
    ofNetwork: () => [],
    ofPod: policyElements,
    chainsOf: policyChains,
    ofOverlay: () => [],
  });
  const compare = async (
    fragments: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<Change[]> => {
    const some = fragments.filter(hasPolicy);
    const [only] = some;
    if (only === undefined) return [];
    return some.length === 1
      ? policies.comparePod(only, signal)
      : policies.comparePods(some, signal);
  };
  return {
    compareNetwork: (fragment, signal) => driver.compareNetwork(fragment, signal),
    // Policies first: no port is open before they decide about its packets.
    comparePod: async (fragment, signal) => [
      ...(await compare([fragment], signal)),
      ...(await driver.comparePod(fragment, signal)),
    ],
    comparePods: async (fragments, signal) => [
      ...(await compare(fragments, signal)),
      ...(await driver.comparePods(fragments, signal)),
    ],
    deviating: async (fragments, signal) => {
      const some = fragments.filter(hasPolicy);
      const found = new Set([
        ...(some.length === 0 ? [] : await policies.deviating(some, signal)),
        ...(await driver.deviating(fragments, signal)),
      ]);
      return fragments.filter((fragment) => found.has(fragment));
    },
    compareOverlay: (overlay, signal) => driver.compareOverlay(overlay, signal),
    compareSenders: (change, signal) => driver.compareSenders(change, signal),
    // Policies go last.
    compareRemoval: async (removed, signal) => [
      ...(await driver.compareRemoval(removed, signal)),
      ...(memory.madeTable(table.model.name) ? await policies.compareRemoval(removed, signal) : []),
    ],
    fingerprint: (signal) => driver.fingerprint(signal),
    facts: (signal) => driver.facts(signal),
    describeOverlay: (overlay) => driver.describeOverlay(overlay),
    describe: (fragment) => [
      ...(fragment.kind === "network" ? [] : policies.describe(fragment)),
      ...driver.describe(fragment),
    ],
    describeChange: (before, after) => [
      ...(hasPolicy(before) || hasPolicy(after) ? policies.describeChange(before, after) : []),
      ...driver.describeChange(before, after),
    ],
  };
}
