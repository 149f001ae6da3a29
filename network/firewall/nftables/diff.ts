import { PodnetError } from "../../../core/errors.ts";
import { parseOwner } from "../../model/ownership.ts";
import { hookOf, mainTable, ruleComments, type TableModel, tableMark } from "./base.ts";
import { mainTableName, type NftablesEdit } from "../../model/rules.ts";
import { type Element, elementId, kindOf } from "../../model/nftables-sets.ts";
import type { ListedChain, Listing } from "./listing.ts";
import { policyComments } from "./policy-chain.ts";

/** The text of each rule, by its comment, as libnftables listed it right after we made it. */
export type KnownRules = ReadonlyMap<string, string>;

/**
 * The change that table, sets, chains and rules need. A rule is identified by its comment, and by
 * its text if that is known. Foreign elements in our sets, and foreign sets and chains, stay;
 * foreign rules in our chains do not, and sets and chains of another version of podnet do not.
 * Pure.
 */
export function diffBase(
  listing: Listing | undefined,
  known: KnownRules,
  model: TableModel = mainTable,
): NftablesEdit["base"] {
  if (listing === undefined) return "make";
  if (hasFormer(listing, model)) return "remake";
  let base: NftablesEdit["base"] = "keep";
  for (const name of model.sets) {
    const found = listing.sets.get(name);
    const { type, value, interval = false } = kindOf(name);
    if (found === undefined) base = "make";
    else if (found.type !== type || found.value !== value || found.interval !== interval)
      return "remake";
  }
  for (const name of Object.keys(model.chains)) {
    const found = listing.chains.get(name);
    const hook = hookOf(name, model);
    const wanted = hook === undefined ? "" : `${hook.type} ${hook.hook} ${hook.priority} accept`;
    if (found === undefined) base = "make";
    else if (found.hook !== wanted) return "remake";
    else if (!sameRules(found.rules, ruleComments(name, model), known)) base = "make";
  }
  return base;
}

/**
 * The chains that elements lead to, as far as they have all of their rules and no others. Pure.
 */
export function wholeChains(
  listing: Listing | undefined,
  known: KnownRules,
  { owns }: TableModel,
): readonly string[] {
  if (listing === undefined || owns === undefined) return [];
  // (No chain is without rules: the last one is what happens otherwise.)
  const isWhole = ([name, { rules }]: readonly [string, ListedChain]): boolean =>
    name.startsWith(owns) &&
    rules.length > 0 &&
    sameRules(rules, policyComments(name, rules.length), known);
  return [...listing.chains].filter(isWhole).map(([name]) => name);
}

/** Whether a set or chain of ours is there that this version does not have: its rules may hold. */
const hasFormer = ({ sets, chains }: Listing, model: TableModel): boolean =>
  [...sets].some(
    ([name, { comment }]) =>
      comment?.startsWith(tableMark) === true && !model.sets.some((set) => set === name),
  ) ||
  [...chains].some(
    ([name, { rules }]) =>
      !Object.hasOwn(model.chains, name) &&
      (model.owns === undefined || !name.startsWith(model.owns)) &&
      rules.some(({ comment }) => comment?.startsWith(tableMark) === true),
  );

function sameRules(
  found: readonly { readonly comment: string | undefined; readonly text: string }[],
  comments: readonly string[],
  known: KnownRules,
): boolean {
  return (
    found.length === comments.length &&
    found.every(({ comment, text }, i) => {
      if (comment === undefined || comment !== comments[i]) return false;
      return (known.get(comment) ?? text) === text;
    })
  );
}

/**
 * Whether a table of our name is ours: an entry in it bears a complete mark of ours. An empty table
 * is not enough.
 */
export function isOurs(listing: Listing): boolean {
  const comments = [
    ...[...listing.sets.values()].flatMap((set) => [
      set.comment,
      ...set.elements.map(({ owner }) => owner),
    ]),
    ...[...listing.chains.values()].flatMap((chain) => chain.rules.map(({ comment }) => comment)),
  ];
  return comments.some(
    (comment) => comment?.startsWith(tableMark) === true || parseOwner(comment) !== undefined,
  );
}

export interface ElementsWanted {
  readonly wanted: readonly Element[];
  /** The elements that the owner has now. */
  readonly owned: readonly Element[];
  /** The element that exists under a key, with any owner. */
  readonly present: (id: string) => Element | undefined;
  /** The name of their table. Default: the main one. */
  readonly table?: string;
}

/**
 * The elements to add and remove for an owner. Pure. Throws `PORT_IN_USE` if a port is already
 * translated for another owner.
 */
export function diffElements(given: ElementsWanted): Pick<NftablesEdit, "remove" | "add"> {
  const { wanted, owned, present, table = mainTableName } = given;
  const remove: Element[] = [];
  const add: Element[] = [];
  const stay = new Set<string>();
  const own = new Set(owned.map(elementId));
  for (const element of wanted) {
    const id = elementId(element);
    // (Of two owners who want one element, the first has it.)
    if (stay.has(id)) continue;
    stay.add(id);
    const found = present(id);
    if (found === element) continue;
    if (found !== undefined) {
      const same = found.owner === element.owner;
      if (same && found.value === element.value) continue;
      const isForeign = !same && !own.has(id);
      if (isForeign && kindOf(element.set).value !== undefined) throw taken(element, found, table);
      remove.push(found);
    }
    add.push(element);
  }
  remove.push(...owned.filter((element) => !stay.has(elementId(element))));
  return { remove, add };
}

function taken({ set, key }: Element, found: Element, table: string): PodnetError {
  const to = found.value === undefined ? "" : ` to ${found.value.replace(" . ", " port ")}`;
  const holder = found.owner ?? "another program";
  const port = portOf(key);
  const what =
    port === undefined
      ? `Element { ${key} } of ${set} is held by ${holder}`
      : `Port ${port} is translated${to} by an element of ${holder}`;
  return new PodnetError("PORT_IN_USE", what, {
    hint: `Choose another port, or take that element away: nft delete element ${table} ${set} '{ ${key} }'`,
    details: { set, key, holder },
  });
}

/** The port that a key is about: `8080/tcp`, or `10.73.0.9 port 80/tcp`. */
function portOf(key: string): string | undefined {
  // A bridge comes first where only its packets are translated.
  const [protocol = "", ...place] = key.split(" . ").filter((word) => !word.startsWith('"'));
  const name = { "6": "tcp", "17": "udp", "132": "sctp" }[protocol];
  if (name === undefined || place.length === 0) return undefined;
  return `${place.join(" port ")}/${name}`;
}

export const tableConflict = ({ name: table }: TableModel = mainTable): PodnetError =>
  new PodnetError("CHAIN_CONFLICT", `Table "${table}" exists and is not podnet's`, {
    field: "firewall",
    hint: `Rename that table; or, if nothing uses it any more, remove it: nft delete table ${table}`,
    details: { table, mark: tableMark },
  });
