import type { ElementChange, SetDeclaration } from "../../../linux/nftables/set-elements.ts";
import { type Element, kindOf, type SetName } from "../../model/nftables-sets.ts";
import type { NftablesEdit } from "../../model/rules.ts";
import type { TableModel } from "./base.ts";
import { addVerb } from "./edit.ts";

/** Elements in one message to the kernel. More of them, at a start, go by libnftables. */
const mostElements = 256;

/**
 * The transaction as changes of elements; undefined for one that changes more than a few elements:
 * tables, sets, chains and rules are written in nft's language (`commands`). Pure.
 */
export function elementChanges(
  { base, fill = [], drop = [], remove, add }: NftablesEdit,
  { sets }: TableModel,
): readonly ElementChange[] | undefined {
  if (base !== "keep" || fill.length + drop.length > 0) return undefined;
  if (remove.length + add.length > mostElements) return undefined;
  const inOrder = (elements: readonly Element[]): readonly Element[] =>
    elements.toSorted((a, b) => sets.indexOf(a.set) - sets.indexOf(b.set));
  return [
    ...inOrder(remove).map(
      ({ set, key }): ElementChange => ({ verb: "delete", set: declarationOf(set), key }),
    ),
    ...inOrder(add).map(
      ({ set, key, value, owner }): ElementChange => ({
        verb: addVerb(set),
        set: declarationOf(set),
        key,
        ...(value === undefined ? {} : { value }),
        ...(owner === undefined ? {} : { comment: owner }),
      }),
    ),
  ];
}

const declarations = new Map<SetName, SetDeclaration>();

/** What the kernel has to be sent of a set to change its elements. Pure. */
export function declarationOf(set: SetName): SetDeclaration {
  const known = declarations.get(set);
  if (known !== undefined) return known;
  const { type, value, interval, fields } = kindOf(set);
  const read = fields?.split(" . ");
  // A field of a packet that has no name has no type either.
  const types = type
    .split(" . ")
    .map((each, i) => (each === "integer" ? (read?.[i] ?? each) : each));
  const declaration = {
    name: set,
    types,
    ...(value === undefined ? {} : { value: value.split(" . ") }),
    ...(interval === undefined ? {} : { interval }),
  };
  declarations.set(set, declaration);
  return declaration;
}
