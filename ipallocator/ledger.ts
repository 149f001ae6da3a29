import type { Occupancy, Offset } from "./occupancy.ts";
import type { Owner } from "./owner.ts";
import { lengthOf, Ranges, type ReservedSpan, type Span } from "./ranges.ts";
import { RecordTable } from "./records.ts";
import type { Space } from "./space.ts";

/** How many offsets are what; the four add up to the size of the space. */
export interface Counts {
  readonly free: bigint;
  readonly used: bigint;
  readonly reserved: bigint;
  readonly quarantined: bigint;
}

/** What an offset is. `record` numbers are good until the ledger changes. */
export type Entry =
  | { readonly kind: "free" }
  | { readonly kind: "leased"; readonly record: number; readonly owner: Owner }
  | { readonly kind: "quarantined"; readonly record: number; readonly since: number }
  | { readonly kind: "reserved"; readonly reason: string };

/**
 * The books of a pool, in offsets: one set of all that is taken, for the search, and alongside it
 * the reserved ranges, the leases and the quarantine. Every change keeps the set and the books in
 * step; nothing here judges whether a change is allowed.
 */
export class Ledger {
  readonly #space: Space;
  readonly #taken: Occupancy;
  readonly #reserved: Ranges;
  readonly #records = new RecordTable();
  /** Where the search looks, in order and apart from each other: by default the whole space. */
  readonly #searched: readonly Span[];
  /** The offset handed out last. */
  cursor: Offset | undefined;

  constructor(space: Space, searched: readonly Span[] = []) {
    this.#space = space;
    this.#searched = searched.length === 0 ? [space] : joined(searched, space);
    this.#taken = space.emptySet();
    this.#reserved = new Ranges(space);
  }

  /** Leases and quarantined offsets together. */
  get recordCount(): number {
    return this.#records.leases + this.#records.inQuarantine;
  }

  counts(): Counts {
    return {
      // Counted where bits change, not as what the others leave, so that the sum proves something.
      free: this.#space.size - this.#taken.count,
      used: BigInt(this.#records.leases),
      reserved: this.#reserved.count,
      quarantined: BigInt(this.#records.inQuarantine),
    };
  }

  at(offset: Offset): Entry {
    const record = this.#records.find(offset);
    if (record === undefined) {
      const span = this.#reserved.find(offset);
      return span === undefined ? { kind: "free" } : { kind: "reserved", reason: span.reason };
    }
    return this.#records.isQuarantined(record)
      ? { kind: "quarantined", record, since: this.#records.sinceOf(record) }
      : { kind: "leased", record, owner: this.#records.ownerOf(record) };
  }

  /** The first free offset behind the cursor (or another one), from the start again at the end. */
  nextFree(behind: Offset | undefined = this.cursor): Offset | undefined {
    const { first } = this.#space;
    const from = behind === undefined ? first : this.#space.after(behind);
    const ahead = from === undefined ? undefined : this.#freeFrom(from);
    return ahead ?? this.#freeFrom(first);
  }

  /** The first free offset from here on where the search looks. */
  #freeFrom(from: Offset): Offset | undefined {
    for (const { first, last } of this.#searched) {
      if (last < from) continue;
      const found = this.#taken.nextFree(first < from ? from : first);
      if (found === undefined) return undefined;
      if (found <= last) return found;
    }
    return undefined;
  }

  /** Whether the search looks there. */
  #isSearched(offset: Offset): boolean {
    return this.#searched.some(({ first, last }) => offset >= first && offset <= last);
  }

  /** Leases a free offset. */
  lease(offset: Offset, owner: Owner): void {
    this.#taken.take(offset);
    this.#records.lease(offset, owner);
  }

  /** Leases a quarantined offset. */
  leaseQuarantined(record: number, owner: Owner): void {
    this.#records.leaseAgain(record, owner);
  }

  /** Ends a lease; the offset rests from `since`. */
  retire(record: number, since: number): void {
    this.#records.retire(record, since);
  }

  /** Lets a free offset rest from `since`. */
  rest(offset: Offset, since: number): void {
    this.#taken.take(offset);
    this.#records.quarantine(offset, since);
  }

  /** Frees a quarantined offset. */
  wake(record: number): void {
    this.#taken.free(this.#records.offsetOf(record));
    this.#records.remove(record);
  }

  /** Frees every offset that has rested since `deadline` or longer. */
  wakeUntil(deadline: number): void {
    for (;;) {
      const oldest = this.#records.oldest();
      if (oldest === undefined || this.#records.sinceOf(oldest) > deadline) return;
      this.wake(oldest);
    }
  }

  /** Records of an owner's leases, in the order of their offsets. */
  recordsOf(owner: Owner): readonly number[] {
    return this.#inOrder(this.#records.ofOwner(owner));
  }

  offsetOf(record: number): Offset {
    return this.#records.offsetOf(record);
  }

  /** Quarantined records, oldest first. */
  quarantine(): Generator<number> {
    return this.#records.quarantineChain();
  }

  /** Quarantined records where the search looks, oldest first. */
  *quarantineSearched(): Generator<number> {
    for (const record of this.#records.quarantineChain())
      if (this.#isSearched(this.#records.offsetOf(record))) yield record;
  }

  /** The lowest leased offset in the part of a span that is not reserved, if there is one. */
  leasedIn(span: Span): Offset | undefined {
    for (const gap of this.#reserved.gaps(span)) {
      const leased = this.#recordsIn(gap).filter((r) => !this.#records.isQuarantined(r));
      const [lowest] = this.#inOrder(leased);
      if (lowest !== undefined) return this.#records.offsetOf(lowest);
    }
    return undefined;
  }

  /** Reserves a span without leases: what is reserved keeps its reason, what rests is woken. */
  reserve(span: ReservedSpan): void {
    for (const gap of this.#reserved.gaps(span)) {
      for (const record of this.#recordsIn(gap)) this.wake(record);
      this.#taken.fill(gap.first, gap.last);
      this.#reserved.add({ ...span, ...gap });
    }
  }

  #inOrder(records: readonly number[]): number[] {
    const offset = (record: number): Offset => this.#records.offsetOf(record);
    return records.toSorted((a, b) => (offset(a) < offset(b) ? -1 : 1));
  }

  /** Records in a span: looked up one by one in a short one, sifted out of all in a long one. */
  #recordsIn(span: Span): number[] {
    if (lengthOf(span) > BigInt(this.recordCount)) {
      return [...this.#records.all()].filter((record) => {
        const offset = this.#records.offsetOf(record);
        return offset >= span.first && offset <= span.last;
      });
    }
    const found: number[] = [];
    let at: Offset | undefined = span.first;
    for (; at !== undefined && at <= span.last; at = this.#space.after(at)) {
      const record = this.#records.find(at);
      if (record !== undefined) found.push(record);
    }
    return found;
  }
}

/** Spans in order, those that touch or overlap made one. */
function joined(spans: readonly Span[], space: Space): Span[] {
  const made: Span[] = [];
  for (const { first, last } of spans.toSorted((a, b) => (a.first < b.first ? -1 : 1))) {
    const before = made.at(-1);
    const next = before === undefined ? undefined : space.after(before.last);
    if (before === undefined || (next !== undefined && first > next)) made.push({ first, last });
    else if (last > before.last) made[made.length - 1] = { first: before.first, last };
  }
  return made;
}
