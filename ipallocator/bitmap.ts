import { lowestBit, type Occupancy, wordMask } from "./occupancy.ts";

/** Offsets a `Bitmap` can hold: an IPv4 /8, 2 MiB of bits and 1/31 more of summaries. */
export const bitmapLimit = 2 ** 24;

/**
 * A bitmap under summary levels: bit i of a level says that word i of the level below is full, and
 * the top level is one word. A search climbs until it sees a gap and comes down to it: at most two
 * words a level, five levels for a /8.
 */
export class Bitmap implements Occupancy<number> {
  readonly #levels: Int32Array[] = [];
  readonly #size: number;
  #count = 0;

  constructor(size: number) {
    if (!Number.isInteger(size) || size < 1 || size > bitmapLimit)
      throw new RangeError(`A bitmap holds 1 to ${bitmapLimit} offsets, not ${size}`);
    this.#size = size;
    for (let bits = size; ; bits = Math.ceil(bits / 32)) {
      const level = new Int32Array(Math.ceil(bits / 32));
      // What lies beyond the end counts as taken, so that no search finds it.
      const over = bits & 31;
      if (over !== 0) level[level.length - 1] = wordMask(over, 31);
      this.#levels.push(level);
      if (level.length === 1) break;
    }
  }

  get count(): bigint {
    return BigInt(this.#count);
  }

  has(offset: number): boolean {
    return (((this.#levels[0] as Int32Array)[offset >>> 5] as number) & (1 << (offset & 31))) !== 0;
  }

  take(offset: number): boolean {
    const words = this.#levels[0] as Int32Array;
    const before = words[offset >>> 5] as number;
    const after = before | (1 << (offset & 31));
    if (after === before) return false;
    words[offset >>> 5] = after;
    this.#count++;
    if (after === -1) this.#markFull(offset >>> 5);
    return true;
  }

  free(offset: number): boolean {
    const words = this.#levels[0] as Int32Array;
    const before = words[offset >>> 5] as number;
    const after = before & ~(1 << (offset & 31));
    if (after === before) return false;
    words[offset >>> 5] = after;
    this.#count--;
    if (before === -1) this.#markOpen(offset >>> 5);
    return true;
  }

  nextFree(from: number): number | undefined {
    const levels = this.#levels;
    let at = from;
    for (let up = 0; up < levels.length; up++) {
      const words = levels[up] as Int32Array;
      const word = at >>> 5;
      if (word >= words.length) return undefined;
      const open = ~(words[word] as number) & (-1 << (at & 31));
      if (open !== 0) {
        at = word * 32 + lowestBit(open);
        for (let down = up - 1; down >= 0; down--)
          at = at * 32 + lowestBit(~((levels[down] as Int32Array)[at] as number));
        return at;
      }
      at = word + 1;
    }
    return undefined;
  }

  fill(first: number, last: number): void {
    if (first < 0 || last >= this.#size)
      throw new RangeError(`${first}-${last} is not in the bitmap`);
    const words = this.#levels[0] as Int32Array;
    for (let word = first >>> 5; word <= last >>> 5; word++) {
      const low = word === first >>> 5 ? first & 31 : 0;
      const high = word === last >>> 5 ? last & 31 : 31;
      const after = (words[word] as number) | wordMask(low, high);
      words[word] = after;
      if (after === -1) this.#markFull(word);
    }
    this.#count += last - first + 1;
  }

  /** Bytes of the levels. */
  get bytes(): number {
    return this.#levels.reduce((sum, level) => sum + level.byteLength, 0);
  }

  /**
   * Word `word` of the bottom level has become full: says so above, as far as that fills words
   * there.
   */
  #markFull(word: number): void {
    let at = word;
    for (let up = 1; up < this.#levels.length; up++) {
      const words = this.#levels[up] as Int32Array;
      const after = (words[at >>> 5] as number) | (1 << (at & 31));
      words[at >>> 5] = after;
      if (after !== -1) return;
      at >>>= 5;
    }
  }

  /** Word `word` of the bottom level is no longer full. */
  #markOpen(word: number): void {
    let at = word;
    for (let up = 1; up < this.#levels.length; up++) {
      const words = this.#levels[up] as Int32Array;
      const before = words[at >>> 5] as number;
      words[at >>> 5] = before & ~(1 << (at & 31));
      if (before !== -1) return;
      at >>>= 5;
    }
  }
}
