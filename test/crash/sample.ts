/** Random numbers from 0 to below 1 that are the same for the same seed (mulberry32). */
export function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** So many of a list, in its order, chosen by `next`. */
export function sample<T>(all: readonly T[], count: number, next: () => number): T[] {
  const chosen = new Set(
    all
      .map((_, index) => ({ index, weight: next() }))
      .toSorted((a, b) => a.weight - b.weight)
      .slice(0, count)
      .map(({ index }) => index),
  );
  return all.filter((_, index) => chosen.has(index));
}
