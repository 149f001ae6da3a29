import type { Random } from "../sim/random.ts";

/** So many of a list, in its order, chosen at random. */
export function sample<T>(all: readonly T[], count: number, random: Random): T[] {
  const chosen = new Set(
    all
      .map((_, index) => ({ index, weight: random.next() }))
      .toSorted((a, b) => a.weight - b.weight)
      .slice(0, count)
      .map(({ index }) => index),
  );
  return all.filter((_, index) => chosen.has(index));
}

/** All of a list, in an order of chance. */
export const shuffled = <T>(all: readonly T[], random: Random): T[] =>
  all
    .map((each) => ({ each, weight: random.next() }))
    .toSorted((a, b) => a.weight - b.weight)
    .map(({ each }) => each);
