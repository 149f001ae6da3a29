import { deleteBase, makeBase, type TableModel } from "./base.ts";
import { type Element, kindOf, type SetName } from "./element.ts";
import { modelOf } from "./guard-tables.ts";

/** One transaction on one of our tables. */
export interface TableEdit {
  /** Family and name; absent is the main one's. */
  readonly table?: string;
  /**
   * What happens to table, sets, chains and rules: nothing; they are made where they are missing or are not as they
   * should be; the same with a new table, where a set or chain is in the way; all of it goes.
   */
  readonly base: "keep" | "make" | "remake" | "delete";
  /** Elements that go. They are there: nft refuses the whole transaction otherwise. */
  readonly remove: readonly Element[];
  /** Elements that come, after the others have gone. None of them may be there, whosoever. */
  readonly add: readonly Element[];
}

export const isEmpty = ({ base, remove, add }: TableEdit): boolean =>
  base === "keep" && remove.length === 0 && add.length === 0;

/** The transaction in nft's language, a command a line. Pure. */
export function commands(edit: TableEdit): string[] {
  const model = modelOf(edit.table);
  if (edit.base === "delete") return deleteBase(model);
  return [
    ...(edit.base === "remake" ? deleteBase(model) : []),
    ...(edit.base === "keep" ? [] : makeBase(model)),
    // A new table is empty.
    ...(edit.base === "remake" ? [] : bySet(model, edit.remove, "delete", ({ key }) => key)),
    ...bySet(model, edit.add, "add", elementText),
  ];
}

/** An element as nft writes it: `6 . 8080 comment "podnet:pod:x" : 192.168.123.2 . 80`. */
export function elementText({ key, owner, value }: Element): string {
  const comment = owner === undefined ? "" : ` comment "${owner}"`;
  return `${key}${comment}${value === undefined ? "" : ` : ${value}`}`;
}

/**
 * In maps elements are created, which the kernel refuses where there is one already: so somebody else's is never taken
 * over. (In a set of intervals it refuses the first one too, whose lower end it has made itself.)
 */
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
    const word = verb === "add" && kindOf(set).value !== undefined ? "create" : verb;
    return [`${word} element ${name} ${set} { ${list.join(", ")} }`];
  });
}
