import { type Family, familyOf, type Ip, ipFromBigInt, ipToBigInt } from "../core/address.ts";
import type { IpRange } from "../core/ip-range.ts";

interface Span {
  readonly family: Family;
  readonly first: bigint;
  readonly last: bigint;
}

const spanOf = ({ first, last }: IpRange): Span => ({
  family: familyOf(first),
  first: ipToBigInt(first),
  last: ipToBigInt(last),
});

const rangeOf = ({ family, first, last }: Span): IpRange => ({
  first: ipFromBigInt(family, first),
  last: ipFromBigInt(family, last),
});

const compare = (a: Span, b: Span): number =>
  a.family - b.family || (a.first < b.first ? -1 : a.first > b.first ? 1 : 0);

/** All addresses of the ranges, as ranges in order with a gap between any two. */
export function merged(ranges: readonly IpRange[]): readonly IpRange[] {
  const joined: Span[] = [];
  for (const span of ranges.map(spanOf).sort(compare)) {
    const before = joined.at(-1);
    if (before === undefined || before.family !== span.family || span.first > before.last + 1n)
      joined.push(span);
    else if (span.last > before.last) joined[joined.length - 1] = { ...before, last: span.last };
  }
  return joined.map(rangeOf);
}

/** The addresses of a range that are in none of the others. */
export function without(range: IpRange, except: readonly IpRange[]): readonly IpRange[] {
  const whole = spanOf(range);
  const left: Span[] = [];
  let { first } = whole;
  for (const hole of merged(except).map(spanOf)) {
    if (hole.family !== whole.family || hole.last < first || hole.first > whole.last) continue;
    if (hole.first > first) left.push({ ...whole, first, last: hole.first - 1n });
    first = hole.last + 1n;
  }
  if (first <= whole.last) left.push({ ...whole, first });
  return left.map(rangeOf);
}

/** Ranges are read once: a decision compares numbers. */
const spans = new WeakMap<readonly IpRange[], readonly Span[]>();

/** Whether one of the ranges, which are in order and apart (`merged`), has the address. */
export function inRanges(ranges: readonly IpRange[], ip: Ip): boolean {
  let known = spans.get(ranges);
  if (known === undefined) spans.set(ranges, (known = ranges.map(spanOf)));
  const value = ipToBigInt(ip);
  const place: Span = { family: familyOf(ip), first: value, last: value };
  // The last range that does not begin behind the address.
  let [low, high] = [0, known.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(known[middle] as Span, place) <= 0) low = middle + 1;
    else high = middle;
  }
  const range = known[low - 1];
  return range !== undefined && range.family === place.family && range.last >= value;
}
