/**
 * Place of an address in its pool, counted from the network address: a plain number where the pool
 * has at most 2^24 addresses, a bigint where it has more. One pool never mixes the two.
 */
export type Offset = number | bigint;

/**
 * Which offsets of a pool are taken, for whatever reason. The cost of `has`, `take`, `free` and
 * `nextFree` does not depend on how many are.
 */
export interface Occupancy<O extends Offset = Offset> {
  /** Offsets taken, counted as they are taken and freed. */
  readonly count: bigint;
  has(offset: O): boolean;
  /** Takes one offset; false when it was taken already. */
  take(offset: O): boolean;
  /** Frees one offset; false when it was free already. */
  free(offset: O): boolean;
  /** The lowest free offset at or after `from`; undefined when there is none up to the end. */
  nextFree(from: O): O | undefined;
  /** Takes `first` to `last`, all of which must be free. */
  fill(first: O, last: O): void;
}

/** Bits `low` to `high` (0 to 31, inclusive) of a 32-bit word. */
export const wordMask = (low: number, high: number): number => (-1 << low) & (-1 >>> (31 - high));

/** Place of the lowest set bit of a word that is not 0. */
export const lowestBit = (word: number): number => 31 - Math.clz32(word & -word);
