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

  /** Replaces a word; `before` is what `word` returned. */
  put(at: bigint, before: number, after: number): void {
    if (after === 0 || after === -1) {
      if (before !== 0 && before !== -1) this.#words.delete(at);
    } else this.#words.set(at, after);
    if (after === -1) this.#setAbove(at, at);
    else if (before === -1) this.#above?.change(at, at, false);
  }

  change(first: bigint, last: bigint, taken: boolean): void {
    const firstWord = first >> 5n;
    const lastWord = last >> 5n;
    const low = Number(first & 31n);
    const high = Number(last & 31n);
    if (firstWord === lastWord) {
      this.#changeWord(firstWord, wordMask(low, high), taken);
      return;
    }
    this.#changeWord(firstWord, wordMask(low, 31), taken);
    this.#changeWord(lastWord, wordMask(0, high), taken);
    if (lastWord - firstWord < 2n) return;
    // Whole words in between: all free or all taken by contract, so none of them is in the map.
    if (taken) this.#setAbove(firstWord + 1n, lastWord - 1n);
    else this.#above?.change(firstWord + 1n, lastWord - 1n, false);
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

  #changeWord(at: bigint, mask: number, taken: boolean): void {
    const before = this.word(at);
    this.put(at, before, taken ? before | mask : before & ~mask);
  }

  #setAbove(first: bigint, last: bigint): void {
    this.#above ??= new Level();
    this.#above.change(first, last, true);
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
    const at = offset >> 5n;
    const before = this.#level.word(at);
    const after = before | (1 << Number(offset & 31n));
    if (after === before) return false;
    this.#level.put(at, before, after);
    this.#count++;
    return true;
  }

  free(offset: bigint): boolean {
    const at = offset >> 5n;
    const before = this.#level.word(at);
    const after = before & ~(1 << Number(offset & 31n));
    if (after === before) return false;
    this.#level.put(at, before, after);
    this.#count--;
    return true;
  }

  nextFree(from: bigint): bigint | undefined {
    const found = this.#level.nextFree(from);
    return found < this.#size ? found : undefined;
  }

  fill(first: bigint, last: bigint): void {
    this.#level.change(first, last, true);
    this.#count += last - first + 1n;
  }

  clear(first: bigint, last: bigint): void {
    this.#level.change(first, last, false);
    this.#count -= last - first + 1n;
  }
}
