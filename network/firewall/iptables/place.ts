import { isPlugged, parseOwner } from "../../model/ownership.ts";
import { commentOf, type Rule, ruleKey, targetOf } from "./rule.ts";
import { joinWords, type SavedTable } from "./save-format.ts";

/** The wanted state of one owner's rules in one table. */
export interface TableWanted {
  readonly observed: SavedTable | undefined;
  /** The chain of ours, `HYPER`. */
  readonly chain: string;
  /** The rules this table is to hold for the owners, in order. */
  readonly rules: readonly Rule[];
  /** Marks whose rules are compared; all others', marked or not, stay as they are. */
  readonly owners: ReadonlySet<string>;
  /**
   * Our chains, the present one and earlier ones, which are deleted once they are empty and no rule
   * jumps to them.
   */
  readonly removable: readonly string[];
}

type Rank = 0 | 1 | 2 | 3;

interface Placed {
  readonly args: readonly string[];
  readonly text: string;
  readonly mark: string | undefined;
  /** Among rules of podnet in one chain, lower ranks come first; undefined for others' rules. */
  readonly rank: Rank | undefined;
}

/**
 * The lines of one `iptables-restore --noflush` commit that bring a table from what it is to what
 * it should be; none when it is so already. Built-in chains are never declared (that would flush
 * them), only single rules in them are named. Positions count the rules of everybody, as they are
 * after the lines before.
 */
export function editTable(wanted: TableWanted): string[] {
  const lines: string[] = [];
  const exists = wanted.observed?.chains.has(wanted.chain) === true;
  const chains = new Map<string, Placed[]>();
  const place = (chain: string, args: readonly string[], text: string): Placed => {
    const mark = commentOf(args);
    return { args, text, mark, rank: rankOf(wanted.chain, chain, args) };
  };
  for (const rule of wanted.observed?.rules ?? [])
    entry(chains, rule.chain).push(place(rule.chain, rule.args, rule.text));

  if (!exists && wanted.rules.length > 0 && usesChain(wanted))
    lines.push(`:${wanted.chain} - [0:0]`);
  const touched = new Set([...chains.keys(), ...wanted.rules.map((rule) => rule.chain)]);
  for (const chain of touched) {
    for (const mark of wanted.owners) {
      const rules = wanted.rules
        .filter((rule) => rule.chain === chain && commentOf(rule.args) === mark)
        .map((rule) => place(chain, rule.args, joinWords(rule.args)));
      lines.push(...editOwner(chain, entry(chains, chain), mark, rules, wanted.chain));
    }
  }
  for (const chain of wanted.removable)
    if (wanted.observed?.chains.has(chain) === true && isIdle(chains, chain))
      lines.push(`-X ${chain}`);
  return lines;
}

/**
 * Brings one owner's rules in one chain to what they should be; `list` is changed along with the
 * lines.
 */
function editOwner(
  chain: string,
  list: Placed[],
  mark: string,
  rules: readonly Placed[],
  ours: string,
): string[] {
  const found = list.filter((rule) => rule.mark === mark);
  const kept = keptRules(list, mark, found, rules);
  const lines: string[] = [];
  for (const rule of found) {
    if (kept.has(rule)) continue;
    // -D deletes the first rule with this text. Duplicates are all ours, because the mark is part
    // of the text.
    lines.push(`-D ${chain} ${rule.text}`);
    list.splice(
      list.findIndex(({ text }) => text === rule.text),
      1,
    );
  }
  const there = new Set(kept.values());
  // The position of the next rule of a rank, once there is one of that rank.
  const next = new Map<Rank | undefined, number>();
  for (const rule of rules) {
    if (there.has(rule)) continue;
    const last = chain === ours && rule.rank !== 0;
    const at = last ? list.length : (next.get(rule.rank) ?? afterLower(list, rule.rank ?? 0));
    lines.push(`-I ${chain} ${at + 1} ${rule.text}`);
    list.splice(at, 0, rule);
    next.set(rule.rank, at + 1);
  }
  return lines;
}

/**
 * Rules that are as they should be, each with the one it was to be. A network's are so together or
 * not at all, for they stand in an order. A pod's are about different ports, and each is for
 * itself: what it publishes besides is not touched by a change.
 */
function keptRules(
  list: readonly Placed[],
  mark: string,
  found: readonly Placed[],
  rules: readonly Placed[],
): ReadonlyMap<Placed, Placed> {
  const kept = new Map<Placed, Placed>();
  if (!inOrder(list, mark)) return kept;
  const owner = parseOwner(mark);
  if (owner === undefined || !isPlugged(owner)) {
    const said = (placed: readonly Placed[]): string =>
      placed.map(({ args }) => ruleKey(args)).join("\n");
    if (said(found) === said(rules))
      for (const [i, rule] of found.entries()) kept.set(rule, rules[i] as Placed);
    return kept;
  }
  const missing = new Map(rules.map((rule) => [ruleKey(rule.args), rule]));
  for (const rule of found) {
    const key = ruleKey(rule.args);
    const wanted = missing.get(key);
    if (wanted !== undefined) kept.set(rule, wanted);
    missing.delete(key);
  }
  return kept;
}

/** The first place behind all rules of lower ranks. */
const afterLower = (list: readonly Placed[], rank: Rank): number =>
  list.findLastIndex((rule) => rule.rank !== undefined && rule.rank < rank) + 1;

/** Whether no rule of this owner stands on the wrong side of another rule of podnet. */
function inOrder(list: readonly Placed[], mark: string): boolean {
  let highest = 0;
  // The highest rank up to this owner's last rule: no later rule may have a lower one.
  let owned = 0;
  for (const rule of list) {
    if (rule.rank === undefined) continue;
    const own = rule.mark === mark;
    if (rule.rank < (own ? highest : owned)) return false;
    highest = Math.max(highest, rule.rank);
    if (own) owned = highest;
  }
  return true;
}

/**
 * In FORWARD, an overlay's own comes first, for it lets in what networks drop; then what asks about
 * packets into any bridge; then what lets them out of one; last, what an overlay accepts of
 * everything else. In a chain of ours, what drops comes after what a pod has opened.
 */
function rankOf(ours: string, chain: string, args: readonly string[]): Rank | undefined {
  const owner = parseOwner(commentOf(args));
  if (owner === undefined) return undefined;
  if (chain === ours) return isPlugged(owner) ? 0 : 1;
  if (chain !== "FORWARD") return 0;
  const accepts = targetOf(args) === "ACCEPT";
  if (owner.kind === "overlay") return accepts ? 3 : 0;
  return accepts && args.includes("-i") ? 2 : 1;
}

/** Whether each rule of podnet stands on the right side of all others of podnet, in every chain. */
export function isOrdered({ rules }: SavedTable, ours: string): boolean {
  const highest = new Map<string, Rank>();
  return rules.every(({ chain, args }) => {
    const rank = rankOf(ours, chain, args);
    if (rank === undefined) return true;
    const before = highest.get(chain) ?? 0;
    highest.set(chain, rank);
    return rank >= before;
  });
}

const usesChain = (wanted: TableWanted): boolean =>
  wanted.rules.some((rule) => rule.chain === wanted.chain || targetOf(rule.args) === wanted.chain);

const isIdle = (chains: ReadonlyMap<string, readonly Placed[]>, chain: string): boolean =>
  (chains.get(chain) ?? []).length === 0 &&
  ![...chains.values()].some((list) => list.some((rule) => targetOf(rule.args) === chain));

function entry(chains: Map<string, Placed[]>, chain: string): Placed[] {
  const list = chains.get(chain) ?? [];
  chains.set(chain, list);
  return list;
}
