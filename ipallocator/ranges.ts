import type { Offset } from "./occupancy.ts";
import type { Space } from "./space.ts";

/** Offsets from `first` to `last`, inclusive. */
export interface Span {
  readonly first: Offset;
  readonly last: Offset;
}

export interface ReservedSpan extends Span {
  readonly reason: string;
}

/** Disjoint reserved spans in order; found by bisection. */
export class Ranges {
  readonly #space: Space;
  readonly #spans: ReservedSpan[] = [];
  #count = 0n;

  constructor(space: Space) {
    this.#space = space;
  }

  /** Offsets in all spans. */
  get count(): bigint {
    return this.#count;
  }

  find(offset: Offset): ReservedSpan | undefined {
    const span = this.#spans[this.#firstEndingFrom(offset)];
    return span !== undefined && span.first <= offset ? span : undefined;
  }

  /** The parts of a span that are in none of ours. */
  gaps({ first, last }: Span): Span[] {
    const gaps: Span[] = [];
    let from: Offset | undefined = first;
    for (let i = this.#firstEndingFrom(first); from !== undefined && from <= last; i++) {
      const span = this.#spans[i];
      if (span === undefined || span.first > last) {
        gaps.push({ first: from, last });
        break;
      }
      if (span.first > from) gaps.push({ first: from, last: this.#space.before(span.first) });
      from = this.#space.after(span.last);
    }
    return gaps;
  }

  /** Adds a span that touches none of ours (see `gaps`). */
  add(span: ReservedSpan): void {
    this.#spans.splice(this.#firstEndingFrom(span.first), 0, span);
    this.#count += lengthOf(span);
  }

  /** Index of the first span whose end is at or after the offset. */
  #firstEndingFrom(offset: Offset): number {
    let low = 0;
    let high = this.#spans.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#spans[middle] as ReservedSpan).last < offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Offsets in a span. */
export const lengthOf = ({ first, last }: Span): bigint => BigInt(last) - BigInt(first) + 1n;
