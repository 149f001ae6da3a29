import type { Family } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { parseOwner } from "../../model/ownership.ts";
import { editTable } from "./place.ts";
import { commentOf, type Rule, targetOf } from "./rule.ts";
import { type TableName, tableNames } from "../../model/rules.ts";
import type { SavedTable, SavedTables } from "./save-format.ts";
import type { IptablesEdit } from "../../model/rules.ts";

export interface FirewallWanted {
  readonly family: Family;
  readonly saved: SavedTables;
  readonly chain: string;
  /** Names our chain had under earlier configurations. */
  readonly oldChains?: readonly string[];
  /** The rules that the owners should have, of every table; an empty list removes all of theirs. */
  readonly rules: readonly Rule[];
  readonly owners: ReadonlySet<string>;
  /** Whether podnet made the chain in this table, as far as it remembers. */
  readonly remembered: (table: TableName, chain: string) => boolean;
}

/**
 * The commits that bring the firewall to the owners' desired rules, filter before nat. Pure. Throws
 * `CHAIN_CONFLICT` if rules are wanted and a foreign chain has our chain's name.
 */
export function diffFirewall(wanted: FirewallWanted): IptablesEdit[] {
  const edits: IptablesEdit[] = [];
  for (const table of tableNames) {
    const observed = wanted.saved.get(table);
    const rules = wanted.rules.filter((rule) => rule.table === table);
    const { chain, owners } = wanted;
    if (rules.length > 0 && !ownsChain(wanted, table, chain))
      throw chainConflict(wanted.family, table, chain);
    const removable = [chain, ...(wanted.oldChains ?? [])].filter(
      (name, i, all) => all.indexOf(name) === i && ownsChain(wanted, table, name),
    );
    const lines = editTable({ observed, chain, rules, owners, removable });
    const makesChain = lines[0]?.startsWith(":") === true;
    if (lines.length > 0) edits.push({ table, lines, makesChain });
  }
  return edits;
}

/** The input of `iptables-restore --noflush` for one commit. */
export const restoreText = (edit: IptablesEdit): string =>
  `*${edit.table}\n${edit.lines.join("\n")}\nCOMMIT\n`;

/** The marks of ours in any table. */
export function marksIn(saved: SavedTables): Set<string> {
  const marks = new Set<string>();
  for (const table of saved.values())
    for (const rule of table.rules) {
      const comment = commentOf(rule.args);
      if (comment !== undefined && parseOwner(comment) !== undefined) marks.add(comment);
    }
  return marks;
}

/**
 * A chain of our name is ours if a rule in it bears a mark; foreign rules in it stay. An empty
 * chain, as `iptables -F` leaves it, is ours if a marked rule jumps to it, if its twin in the other
 * table is ours, or if we recorded making it. Otherwise the chain and its rules are foreign (an
 * ancestor's, likely).
 */
function ownsChain(wanted: FirewallWanted, table: TableName, chain: string): boolean {
  const evidence = (saved: SavedTable | undefined): "absent" | "ours" | "empty" | "foreign" => {
    if (saved?.chains.has(chain) !== true) return "absent";
    const marked = saved.rules.filter((rule) => parseOwner(commentOf(rule.args)) !== undefined);
    if (marked.some((rule) => rule.chain === chain)) return "ours";
    if (saved.rules.some((rule) => rule.chain === chain)) return "foreign";
    return marked.some((rule) => targetOf(rule.args) === chain) ? "ours" : "empty";
  };
  const found = evidence(wanted.saved.get(table));
  if (found !== "empty") return found !== "foreign";
  const twin = tableNames.some((other) => evidence(wanted.saved.get(other)) === "ours");
  return twin || wanted.remembered(table, chain);
}

function chainConflict(family: Family, table: TableName, chain: string): PodnetError {
  const command = family === 4 ? "iptables" : "ip6tables";
  return new PodnetError(
    "CHAIN_CONFLICT",
    `Chain "${chain}" of table ${table} exists and is not podnet's`,
    {
      field: "iptables_chain",
      hint: `Set iptables_chain to another name; or, if nothing uses it any more (hyperd?), remove it: ${command} -t ${table} -F ${chain}; ${command} -t ${table} -X ${chain}`,
      details: { table, chain },
    },
  );
}
