import type { Offset } from "./occupancy.ts";
import type { Space } from "./space.ts";

/** Offsets from `first` to `last`, inclusive. */
export interface Span {
  readonly first: Offset;
  readonly last: Offset;
}

export interface ReservedSpan extends Span {
  readonly reason: string;
  /** Never given back: network and broadcast address. */
  readonly fixed: boolean;
}

/** Disjoint reserved spans in order; found by bisection. */
export class Ranges {
  readonly #space: Space;
  #spans: ReservedSpan[] = [];
  #count = 0n;

  constructor(space: Space) {
    this.#space = space;
  }

  /** Offsets in all spans. */
  get count(): bigint {
    return this.#count;
  }

  all(): readonly ReservedSpan[] {
    return this.#spans;
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

  /** Removes what of ours lies in `span` and may go; answers the parts that went. */
  remove(span: Span): Span[] {
    const gone: Span[] = [];
    const kept: ReservedSpan[] = [];
    for (const own of this.#spans) {
      if (own.last < span.first || own.first > span.last || own.fixed) {
        kept.push(own);
        continue;
      }
      const first = own.first < span.first ? span.first : own.first;
      const last = own.last > span.last ? span.last : own.last;
      gone.push({ first, last });
      if (own.first < first) kept.push({ ...own, last: this.#space.before(first) });
      const rest = this.#space.after(last);
      if (own.last > last && rest !== undefined) kept.push({ ...own, first: rest });
    }
    this.#spans = kept;
    for (const part of gone) this.#count -= lengthOf(part);
    return gone;
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
