import { lowestBit, type Occupancy, wordMask } from "./occupancy.ts";

/** One level: words of 32 offsets that are neither empty nor full, by number. */
class Level {
  /** Absent means all 32 alike: taken when the level above says so, free otherwise. */
  readonly #words = new Map<bigint, number>();
  #above: Level | undefined;

  word(at: bigint): number {
    return this.#words.get(at) ?? (this.#above?.has(at) ? -1 : 0);
  }

  has(offset: bigint): boolean {
    return (this.word(offset >> 5n) & (1 << Number(offset & 31n))) !== 0;
  }

  /** Takes one offset; false when it was taken already. */
  take(offset: bigint): boolean {
    return this.#takeOf(offset >> 5n, 1 << Number(offset & 31n));
  }

  /** Frees one offset; false when it was free already. */
  free(offset: bigint): boolean {
    const at = offset >> 5n;
    const before = this.word(at);
    const after = before & ~(1 << Number(offset & 31n));
    if (after === before) return false;
    this.#put(at, before, after);
    return true;
  }

  /** Takes `first` to `last`, all of which must be free. */
  fill(first: bigint, last: bigint): void {
    const firstWord = first >> 5n;
    const lastWord = last >> 5n;
    const low = Number(first & 31n);
    const high = Number(last & 31n);
    if (firstWord === lastWord) {
      this.#takeOf(firstWord, wordMask(low, high));
      return;
    }
    this.#takeOf(firstWord, wordMask(low, 31));
    this.#takeOf(lastWord, wordMask(0, high));
    // Whole words in between are free by contract, so none of them is in the map.
    if (lastWord - firstWord >= 2n) this.#fillAbove(firstWord + 1n, lastWord - 1n);
  }

  nextFree(from: bigint): bigint {
    const at = from >> 5n;
    const open = ~this.word(at) & (-1 << Number(from & 31n));
    if (open !== 0) return (at << 5n) | BigInt(lowestBit(open));
    const next = this.#above === undefined ? at + 1n : this.#above.nextFree(at + 1n);
    // That word is not full: it is here, or it is empty.
    return (next << 5n) | BigInt(lowestBit(~(this.#words.get(next) ?? 0)));
  }

  get words(): number {
    return this.#words.size + (this.#above?.words ?? 0);
  }

  /** Takes the bits of `mask` in a word; false when it had them. */
  #takeOf(at: bigint, mask: number): boolean {
    const before = this.word(at);
    const after = before | mask;
    if (after === before) return false;
    this.#put(at, before, after);
    return true;
  }

  /** Replaces a word; `before` is what `word` returned. */
  #put(at: bigint, before: number, after: number): void {
    if (after === 0 || after === -1) {
      if (before !== 0 && before !== -1) this.#words.delete(at);
    } else this.#words.set(at, after);
    if (after === -1) this.#fillAbove(at, at);
    else if (before === -1) this.#above?.free(at);
  }

  #fillAbove(first: bigint, last: bigint): void {
    this.#above ??= new Level();
    this.#above.fill(first, last);
  }
}

/**
 * A set of offsets for pools too large for a bitmap. Words of 32 offsets live in a map while they
 * are mixed; a full word is one bit of the next level, which is a set of the same kind. A run of
 * any length, even a reserved /65, costs a few words a level, and levels appear when there is a
 * full word to report.
 */
export class SparseSet implements Occupancy<bigint> {
  readonly #level = new Level();
  readonly #size: bigint;
  #count = 0n;

  constructor(size: bigint) {
    if (size < 1n) throw new RangeError(`A set of offsets needs a size, not ${size}`);
    this.#size = size;
  }

  get count(): bigint {
    return this.#count;
  }

  /** Words held, over all levels. */
  get words(): number {
    return this.#level.words;
  }

  has(offset: bigint): boolean {
    return this.#level.has(offset);
  }

  take(offset: bigint): boolean {
    if (!this.#level.take(offset)) return false;
    this.#count++;
    return true;
  }

  free(offset: bigint): boolean {
    if (!this.#level.free(offset)) return false;
    this.#count--;
    return true;
  }

  nextFree(from: bigint): bigint | undefined {
    const found = this.#level.nextFree(from);
    return found < this.#size ? found : undefined;
  }

  fill(first: bigint, last: bigint): void {
    this.#level.fill(first, last);
    this.#count += last - first + 1n;
  }
}
