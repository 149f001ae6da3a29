import { type Cidr, familyBits, familyOf, lengthOf } from "../../core/address.ts";
import type { Owner } from "../../ipallocator/owner.ts";

/**
 * What the pool should do, said as plainly as possible: maps, and a search one address at a time.
 */
export class ReferencePool {
  readonly size: bigint;
  readonly used = new Map<bigint, Owner>();
  /** In order of release; the value is when. */
  readonly quarantinedOffsets = new Map<bigint, number>();
  reserved: { first: bigint; last: bigint; reason: string; fixed: boolean }[] = [];
  readonly quarantineMs: number;
  /** Time that only goes forward. */
  time = 0;
  cursor = -1n;

  constructor(network: Cidr, quarantineMs: number) {
    this.size = 1n << BigInt(familyBits(familyOf(network)) - lengthOf(network));
    this.quarantineMs = quarantineMs;
    this.reserved.push({ first: 0n, last: 0n, reason: "network", fixed: true });
    if (familyOf(network) === 4) {
      const last = this.size - 1n;
      this.reserved.push({ first: last, last, reason: "broadcast", fixed: true });
    }
  }

  reservation(offset: bigint): { last: bigint; reason: string } | undefined {
    return this.reserved.find(({ first, last }) => first <= offset && offset <= last);
  }

  pass(ms: number): void {
    this.time += Math.max(0, ms);
    for (const [offset, since] of this.quarantinedOffsets)
      if (since + this.quarantineMs <= this.time) this.quarantinedOffsets.delete(offset);
  }

  /** What to hand out next, at most `count`: free ones behind the cursor, then what rests. */
  peek(count: number): bigint[] {
    const found: bigint[] = [];
    for (const [from, end] of [
      [this.cursor + 1n, this.size],
      [0n, this.cursor + 1n],
    ] as const) {
      for (let offset = from; offset < end && found.length < count; offset++) {
        const span = this.reservation(offset);
        if (span !== undefined) offset = span.last;
        else if (!this.used.has(offset) && !this.quarantinedOffsets.has(offset)) found.push(offset);
      }
    }
    return [...found, ...this.quarantinedOffsets.keys()].slice(0, count);
  }

  acquireAt(offset: bigint, owner: Owner): string {
    if (offset < 0n || offset >= this.size) return "ADDRESS_OUT_OF_RANGE";
    if (this.used.has(offset)) return "ADDRESS_IN_USE";
    if (this.reservation(offset) !== undefined) return "ADDRESS_RESERVED";
    this.quarantinedOffsets.delete(offset);
    this.used.set(offset, owner);
    return "done";
  }

  release(offset: bigint): string {
    if (offset < 0n || offset >= this.size) return "ADDRESS_OUT_OF_RANGE";
    if (!this.used.delete(offset)) return "ADDRESS_NOT_ALLOCATED";
    this.quarantinedOffsets.set(offset, this.time);
    return "done";
  }

  held(owner: Owner): bigint[] {
    const offsets = [...this.used].filter(([, o]) => o.kind === owner.kind && o.id === owner.id);
    return offsets.map(([offset]) => offset).sort(ascending);
  }

  reserve(first: bigint, last: bigint, reason: string): string {
    if (first < 0n || last >= this.size) return "ADDRESS_OUT_OF_RANGE";
    if (first > last) return "INVALID_ARGUMENT";
    for (const offset of this.used.keys())
      if (first <= offset && offset <= last) return "ADDRESS_IN_USE";
    for (const offset of this.quarantinedOffsets.keys())
      if (first <= offset && offset <= last) this.quarantinedOffsets.delete(offset);
    let from = first;
    for (const own of this.reserved.toSorted((a, b) => ascending(a.first, b.first))) {
      if (own.last < from || own.first > last) continue;
      if (own.first > from)
        this.reserved.push({ first: from, last: own.first - 1n, reason, fixed: false });
      from = own.last + 1n;
    }
    if (from <= last) this.reserved.push({ first: from, last, reason, fixed: false });
    return "done";
  }

  counts(): { size: bigint; free: bigint; used: bigint; reserved: bigint; quarantined: bigint } {
    const used = BigInt(this.used.size);
    const quarantined = BigInt(this.quarantinedOffsets.size);
    let reserved = 0n;
    for (const { first, last } of this.reserved) reserved += last - first + 1n;
    return {
      size: this.size,
      free: this.size - used - quarantined - reserved,
      used,
      reserved,
      quarantined,
    };
  }
}

const ascending = (a: bigint, b: bigint): number => (a < b ? -1 : a > b ? 1 : 0);
