import type { Listing } from "./clients.ts";
import type { Call } from "./history.ts";

/** A list as a look at every name. */
export const looksOf = (listings: readonly Listing[], names: readonly string[]): Call[] =>
  listings.flatMap(({ invoked, returned, by, pods }) =>
    names.map((name) => ({
      invoked,
      returned,
      by,
      name,
      outcome: pods.find((pod) => pod.name === name)?.outcome ?? ({ kind: "absent" } as const),
    })),
  );

/**
 * What lists say of each other: each is of one moment for all names, and the cursor says which. Of
 * the same cursor two lists are the same, and one that had its answer before another began has no
 * later one.
 */
export function disagreements(listings: readonly Listing[]): readonly string[] {
  const wrong: string[] = [];
  const shown = ({ pods }: Listing): string =>
    JSON.stringify(pods.toSorted((a, b) => (a.name < b.name ? -1 : 1)));
  const byCursor = new Map<bigint, Listing>();
  for (const one of listings) {
    const other = byCursor.get(one.cursor);
    if (other !== undefined && shown(other) !== shown(one))
      wrong.push(`At ${one.cursor} there was ${shown(other)} and ${shown(one)}`);
    byCursor.set(one.cursor, one);
  }
  let newest: Listing | undefined;
  const returns = listings.toSorted((a, b) => a.returned - b.returned);
  let at = 0;
  for (const one of listings.toSorted((a, b) => a.invoked - b.invoked)) {
    for (; (returns[at]?.returned ?? Infinity) < one.invoked; at++) {
      const ended = returns[at] as Listing;
      if (newest === undefined || ended.cursor > newest.cursor) newest = ended;
    }
    if (newest !== undefined && one.cursor < newest.cursor)
      wrong.push(`${one.by} saw ${one.cursor} after ${newest.by} had seen ${newest.cursor}`);
  }
  return wrong;
}
