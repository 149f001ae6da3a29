import type { Cidr, Ip } from "../core/address.ts";
import { assertNever } from "../core/brand.ts";
import type { Clock } from "../core/clock.ts";
import * as failures from "./failures.ts";
import { type Entry, Ledger } from "./ledger.ts";
import { MonotoneTime } from "./monotone.ts";
import type { Offset } from "./occupancy.ts";
import { checkOwner, type Owner } from "./owner.ts";
import type { Span } from "./ranges.ts";
import { openSpace, type Space } from "./space.ts";

export interface PoolOptions {
  /** IPv4 /8 to /30, IPv6 /8 to /126. */
  readonly network: Cidr;
  readonly clock: Clock;
  /** How long a released address is not handed out again, milliseconds. Default one minute. */
  readonly quarantineMs?: number;
  /** Reserved from the start, with the reason `gateway`. */
  readonly gateway?: Ip;
  /**
   * Where `peek` looks; the whole network unless given. `acquireAt` takes others too.
   */
  readonly ranges?: readonly IpRange[];
  /**
   * Leased and quarantined addresses the pool keeps at most, so that a very large network cannot
   * fill the memory. Default 2^24: more than a full IPv4 /8 needs.
   */
  readonly maxLeases?: number;
}

/** Every address is counted in exactly one of the four; they add up to `size`. */
export interface PoolStats {
  readonly size: bigint;
  readonly free: bigint;
  readonly used: bigint;
  readonly reserved: bigint;
  readonly quarantined: bigint;
}

export type AddressState =
  | { readonly state: "free" }
  | { readonly state: "used"; readonly owner: Owner }
  | { readonly state: "reserved"; readonly reason: string }
  /** Times are milliseconds since 1970. */
  | { readonly state: "quarantined"; readonly since: number; readonly until: number };

/** One address, or all from `first` to `last`. */
export type IpRange = Ip | { readonly first: Ip; readonly last: Ip };

/**
 * Which addresses of one network are free, reserved, leased (and by whom) or in quarantine.
 *
 * Pure and synchronous; the caller makes it durable. `peek` finds addresses as runv did: the next
 * free one behind the last handed out, from the start again at the end. The caller takes one by
 * `acquireAt`, and moves the place of the search by `seek`. A released address rests for
 * `quarantineMs`; when nothing else is left, the one that has rested longest goes first.
 *
 * Methods that depend on time take `now`, milliseconds since 1970, by default the clock's. When the
 * clock is set back, time stands still here until it has caught up.
 */
export class AddressPool {
  readonly #quarantineMs: number;
  readonly #maxLeases: number;
  readonly #clock: Clock;
  readonly #space: Space;
  readonly #ledger: Ledger;
  readonly #time = new MonotoneTime();

  /** Throws `ADDRESS_INVALID` or `INVALID_ARGUMENT` for a network that cannot be a pool. */
  constructor(options: PoolOptions) {
    this.#space = openSpace(options.network);
    this.#quarantineMs = failures.wholeNumber(options.quarantineMs ?? 60_000, "quarantineMs");
    this.#maxLeases = failures.wholeNumber(options.maxLeases ?? 2 ** 24, "maxLeases");
    this.#clock = options.clock;
    this.#ledger = new Ledger(
      this.#space,
      options.ranges?.map((range) => this.#spanOf(range)),
    );
    const { first, last } = this.#space;
    // In IPv6 the first address is the subnet-router anycast address (RFC 4291 2.6.1); there is no
    // broadcast.
    this.#ledger.reserve({ first, last: first, reason: "network" });
    if (this.#space.family === 4) this.#ledger.reserve({ first: last, last, reason: "broadcast" });
    if (options.gateway !== undefined) this.reserve(options.gateway, "gateway");
  }

  /**
   * Leases an address by name; one in quarantine is granted, as the caller knows what it wants.
   * Throws `ADDRESS_IN_USE` (details `holderKind` and `holderId`; also when the holder is the same
   * owner), `ADDRESS_RESERVED`, `ADDRESS_OUT_OF_RANGE`, `ADDRESS_INVALID`, `POOL_EXHAUSTED` (at
   * `maxLeases`).
   */
  acquireAt(ip: Ip, owner: Owner): void {
    checkOwner(owner);
    const offset = this.#offsetOf(ip);
    const entry = this.#unclaimed(offset);
    if (entry.kind === "quarantined") {
      this.#ledger.leaseQuarantined(entry.record, owner);
      return;
    }
    if (this.#ledger.recordCount >= this.#maxLeases) {
      const oldest = this.#ledger.quarantineSearched().next().value;
      if (oldest === undefined)
        throw failures.leaseLimitReached(this.#space.network, this.#maxLeases);
      this.#ledger.wake(oldest);
    }
    this.#ledger.lease(offset, owner);
  }

  /**
   * Ends a lease and answers whose it was; the address goes into quarantine.
   * Throws `ADDRESS_NOT_ALLOCATED`, `ADDRESS_OUT_OF_RANGE`, `ADDRESS_INVALID`.
   */
  release(ip: Ip, now: number = this.#clock.now()): Owner {
    const time = this.#advance(now);
    const offset = this.#offsetOf(ip);
    const entry = this.#ledger.at(offset);
    if (entry.kind !== "leased")
      throw failures.notAllocated(this.#space.ipAt(offset), this.#state(entry).state);
    this.#ledger.retire(entry.record, time);
    return entry.owner;
  }

  /** Ends all leases of an owner, the lowest address first, and answers them; none is no error. */
  releaseOwner(owner: Owner, now: number = this.#clock.now()): Ip[] {
    const time = this.#advance(now);
    const records = this.#ledger.recordsOf(owner);
    for (const record of records) this.#ledger.retire(record, time);
    return records.map((record) => this.#space.ipAt(this.#ledger.offsetOf(record)));
  }

  /**
   * Takes addresses out of the pool. What is reserved already keeps its reason; what rests in
   * quarantine leaves it. Throws `ADDRESS_IN_USE` when one is leased, and then reserves none.
   */
  reserve(range: IpRange, reason: string): void {
    const span = this.#spanOf(range);
    const leased = this.#ledger.leasedIn(span);
    if (leased !== undefined) this.#unclaimed(leased);
    this.#ledger.reserve({ ...span, reason });
  }

  /**
   * Puts a free address into quarantine as released at `since`: for a pool rebuilt from stored
   * rows. One that rests already stays as it is. Throws `ADDRESS_IN_USE`, `ADDRESS_RESERVED`,
   * `ADDRESS_OUT_OF_RANGE`, `ADDRESS_INVALID`.
   */
  quarantine(ip: Ip, since: number): void {
    const offset = this.#offsetOf(ip);
    if (this.#unclaimed(offset).kind === "free") this.#ledger.rest(offset, this.#time.adopt(since));
  }

  /**
   * The addresses to hand out next, at most `count`, in order: the free ones, then those that
   * rest, oldest first. Takes nothing.
   */
  peek(count: number, now: number = this.#clock.now()): Ip[] {
    this.#advance(now);
    const found: Offset[] = [];
    // At the limit of leases only what rests can be handed out, though others are free.
    const fresh = Math.min(count, this.#maxLeases - this.#ledger.recordCount);
    let next = this.#ledger.nextFree();
    while (found.length < fresh && next !== undefined && next !== found[0]) {
      found.push(next);
      next = this.#ledger.nextFree(next);
    }
    for (const record of this.#ledger.quarantineSearched()) {
      if (found.length >= count) break;
      found.push(this.#ledger.offsetOf(record));
    }
    return found.map((offset) => this.#space.ipAt(offset));
  }

  /** Addresses in quarantine, oldest first, `count` at most. */
  quarantined(count: number, now: number = this.#clock.now()): Ip[] {
    this.#advance(now);
    const found: Ip[] = [];
    for (const record of this.#ledger.quarantine()) {
      if (found.length >= count) break;
      found.push(this.#space.ipAt(this.#ledger.offsetOf(record)));
    }
    return found;
  }

  /** Makes the next search start behind this address, as if it had been handed out last. */
  seek(ip: Ip): void {
    this.#ledger.cursor = this.#offsetOf(ip);
  }

  /** What an address is now. Throws `ADDRESS_OUT_OF_RANGE`, `ADDRESS_INVALID`. */
  lookup(ip: Ip, now: number = this.#clock.now()): AddressState {
    this.#advance(now);
    return this.#state(this.#ledger.at(this.#offsetOf(ip)));
  }

  stats(now: number = this.#clock.now()): PoolStats {
    this.#advance(now);
    return { size: this.#space.size, ...this.#ledger.counts() };
  }

  /** Frees what has rested long enough; answers the pool's own time. */
  #advance(now: number): number {
    const time = this.#time.at(now);
    this.#ledger.wakeUntil(time - this.#quarantineMs);
    return time;
  }

  #state(entry: Entry): AddressState {
    switch (entry.kind) {
      case "free":
        return { state: "free" };
      case "reserved":
        return { state: "reserved", reason: entry.reason };
      case "leased":
        return { state: "used", owner: entry.owner };
      case "quarantined": {
        const since = this.#time.onClock(entry.since);
        return { state: "quarantined", since, until: since + this.#quarantineMs };
      }
      default:
        return assertNever(entry);
    }
  }

  /** The entry of an offset that is neither leased nor reserved. */
  #unclaimed(offset: Offset): Entry & { kind: "free" | "quarantined" } {
    const entry = this.#ledger.at(offset);
    if (entry.kind === "leased") throw failures.inUse(this.#space.ipAt(offset), entry.owner);
    if (entry.kind === "reserved") throw failures.reserved(this.#space.ipAt(offset), entry.reason);
    return entry;
  }

  #offsetOf(ip: Ip): Offset {
    const offset = this.#space.offsetOf(ip);
    if (offset === undefined) throw failures.outOfRange(ip, this.#space.network);
    return offset;
  }

  #spanOf(range: IpRange): Span {
    const [from, to] = typeof range === "string" ? [range, range] : [range.first, range.last];
    const span = { first: this.#offsetOf(from), last: this.#offsetOf(to) };
    if (span.first > span.last) throw failures.rangeBackwards(from, to);
    return span;
  }
}
