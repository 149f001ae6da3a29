import { type DropKind, dropKindOf } from "../../model/drop-kinds.ts";
import { entriesOf, objectOf, textOf } from "./listing.ts";

/** Packets of one kind that the guard dropped at a port, since the port was made. */
export interface Drop {
  readonly link: string;
  readonly kind: DropKind;
  readonly packets: number;
  readonly bytes: number;
}

/** As the kernel counts: by the index of a link, which no later link gets, and a number. */
interface ListedDrop extends Omit<Drop, "kind"> {
  readonly number: number;
}

/**
 * Parses the JSON that libnftables prints for the set of drops. nft writes a link's name, or its
 * index where it finds no such link. Throws `FIREWALL_FAILED`.
 */
export function parseDrops(text: string): ListedDrop[] {
  return entriesOf(text).flatMap((entry): ListedDrop[] => {
    const { elem } = objectOf(entry["set"]) ?? {};
    return (Array.isArray(elem) ? elem : []).flatMap((each): ListedDrop[] => {
      const element = objectOf(objectOf(each)?.["elem"]);
      const key = objectOf(element?.["val"])?.["concat"];
      const counter = objectOf(element?.["counter"]);
      if (!Array.isArray(key) || counter === undefined) return [];
      const [packets, bytes] = [Number(counter["packets"]), Number(counter["bytes"])];
      return [{ link: textOf(key[0]), number: Number(key[1]), packets, bytes }];
    });
  });
}

/**
 * The drops at links that are there, and the keys of the others, as nft takes them. `names` has the
 * links by index: nft looks for names in the namespace of the thread that it runs on. Pure.
 */
export function placeDrops(
  listed: readonly ListedDrop[],
  names: ReadonlyMap<number, string>,
): { readonly drops: readonly Drop[]; readonly stale: readonly string[] } {
  const drops: Drop[] = [];
  const stale: string[] = [];
  for (const { link: word, number, ...counts } of listed) {
    const link = isIndex(word) ? names.get(Number(word)) : word;
    const kind = dropKindOf(number);
    if (link === undefined) stale.push(`${word} . ${number}`);
    else if (kind !== undefined) drops.push({ link, kind, ...counts });
  }
  return { drops, stale };
}

export const isIndex = (word: string): boolean => /^[0-9]+$/.test(word);
