import type { PluggedFragment } from "../../model/desired.ts";
import { publishedMark } from "../../model/ownership.ts";
import { marksIn } from "./diff.ts";
import { type FirewallContext, variantToWrite } from "./diff-owners.ts";
import type { ObservedFirewall } from "./firewall.ts";
import { isOrdered } from "./place.ts";
import { publishedRules } from "./published-rules.ts";
import { commentOf, ruleKey } from "./rule.ts";
import { type TableName, tableNames } from "../../model/rules.ts";
import type { SavedTables } from "./save-format.ts";

/**
 * The pods whose rules in one family are not as wanted: each pod's rules are compared as a set,
 * which takes one pass over the listing for all of them. Where the order of rules is wrong anywhere
 * it is all of them. Pure. Throws as `diffNetworkFirewall`.
 */
export function deviatingPods(
  pods: readonly PluggedFragment[],
  chain: string,
  observed: ObservedFirewall,
  context: FirewallContext,
): readonly PluggedFragment[] {
  const variant = variantToWrite(observed, context);
  const saved = observed.saved[variant];
  for (const table of saved.values()) if (!isOrdered(table, chain)) return pods;
  const others = marksIn(observed.saved[variant === "nft" ? "legacy" : "nft"]);
  const found = rulesByMark(saved);
  return pods.filter((pod) => {
    const mark = publishedMark(pod);
    const wanted = publishedRules(pod, chain, observed.family).map((rule) =>
      said(rule.table, rule.chain, rule.args),
    );
    return others.has(mark) || together(wanted) !== together(found.get(mark) ?? []);
  });
}

/** The texts of the rules that bear a mark, of podnet or not. */
function rulesByMark(saved: SavedTables): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, string[]>();
  for (const name of tableNames)
    for (const { chain, args } of saved.get(name)?.rules ?? []) {
      const mark = commentOf(args);
      if (mark === undefined) continue;
      const rules = found.get(mark) ?? [];
      found.set(mark, rules);
      rules.push(said(name, chain, args));
    }
  return found;
}

const said = (table: TableName, chain: string, args: readonly string[]): string =>
  `${table} ${chain} ${ruleKey(args)}`;

const together = (rules: readonly string[]): string => rules.toSorted().join("\n");
