import { deleteBase, makeBase, type TableModel } from "./base.ts";
import { modelOf } from "./guard-tables.ts";
import { type Element, elementText, kindOf, type SetName } from "../../model/nftables-sets.ts";
import type { NftablesEdit, PolicyChain } from "../../model/rules.ts";
import { policyComments } from "./policy-chain.ts";

/** The transaction in nft's language, a command a line. Pure. */
export function commands(edit: NftablesEdit, model = modelOf(edit.table)): string[] {
  if (edit.base === "delete") return deleteBase(model);
  return [
    ...(edit.base === "remake" ? deleteBase(model) : []),
    ...(edit.base === "keep" ? [] : makeBase(model)),
    ...(edit.fill ?? []).flatMap((chain) => fillChain(model, chain)),
    // A new table is empty.
    ...(edit.base === "remake" ? [] : bySet(model, edit.remove, "delete", ({ key }) => key)),
    ...bySet(model, edit.add, "add", elementText),
    ...(edit.drop ?? []).map((chain) => `delete chain ${model.name} ${chain}`),
  ];
}

function fillChain({ name }: TableModel, chain: PolicyChain): string[] {
  const comments = policyComments(chain.name, chain.rules.length);
  return [
    `add chain ${name} ${chain.name}`,
    `flush chain ${name} ${chain.name}`,
    ...chain.rules.map(
      (rule, i) => `add rule ${name} ${chain.name} ${rule} comment "${comments[i] ?? ""}"`,
    ),
  ];
}

/**
 * Elements of maps are made by `create`, which the kernel refuses if the element exists: so a
 * foreign element is never overwritten. (In a set of intervals the kernel refuses even the first
 * element, whose lower end it has made itself.)
 */
export const addVerb = (set: SetName): "add" | "create" =>
  kindOf(set).value === undefined ? "add" : "create";

function bySet(
  { name, sets }: TableModel,
  elements: readonly Element[],
  verb: "add" | "delete",
  text: (element: Element) => string,
): string[] {
  const lists = new Map<SetName, string[]>();
  for (const element of elements) {
    const list = lists.get(element.set) ?? [];
    lists.set(element.set, list);
    list.push(text(element));
  }
  return sets.flatMap((set) => {
    const list = lists.get(set);
    if (list === undefined) return [];
    return [
      `${verb === "add" ? addVerb(set) : verb} element ${name} ${set} { ${list.join(", ")} }`,
    ];
  });
}
