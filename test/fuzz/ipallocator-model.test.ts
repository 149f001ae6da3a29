import assert from "node:assert/strict";
import test from "ava";
import {
  type Cidr,
  familyOf,
  type Ip,
  ipFromBigInt,
  ipToBigInt,
  parseCidr,
  rangeOf,
} from "../../core/address.ts";
import { isPodnetError } from "../../core/errors.ts";
import { type Owner, ownerKinds } from "../../ipallocator/owner.ts";
import { AddressPool, type AddressState } from "../../ipallocator/pool.ts";
import { Random, runSeed } from "./engine/random.ts";
import { ReferencePool } from "./ipallocator-reference.ts";

/**
 * One million random operations in all, on the pool and on a model of maps; every answer, every
 * error and the counts after every operation are the same. Plain asserts, as ava's cost more than
 * what they check. PODNET_SEED repeats a run.
 */
const seed = runSeed();
const operations = 1_000_000;
const networks = [
  "192.168.123.0/30",
  "10.0.0.0/29",
  "10.1.2.64/27",
  "192.168.123.0/24",
  "10.4.0.0/22",
  "fd00::/126",
  "fd00::ff:0/122",
  "fd00:1:2:3::/64",
  "2001:db8:7::/48",
  "fc00::/8",
] as const;

/** Milliseconds that an address rests. */
const quarantines = [50, 0, 1000] as const;

function codeOf(body: () => void): string {
  try {
    body();
    return "done";
  } catch (thrown) {
    if (!isPodnetError(thrown) || thrown.hint === undefined) throw thrown;
    return thrown.code;
  }
}

class Run {
  readonly #random: (below: number) => number;
  readonly #base: bigint;
  readonly #family: 4 | 6;
  readonly #model: ReferencePool;
  readonly #open: () => AddressPool;
  #pool: AddressPool;
  #wall = 1_000_000;

  constructor(network: Cidr, quarantineMs: number, random: (below: number) => number) {
    this.#random = random;
    this.#base = rangeOf(network).first;
    this.#family = familyOf(network);
    this.#model = new ReferencePool(network, quarantineMs);
    this.#open = () => new AddressPool({ network, quarantineMs, clock: this.#clock });
    this.#pool = this.#open();
  }

  readonly #clock = { now: () => this.#wall, monotonic: () => this.#wall };

  step(): void {
    const { size } = this.#model;
    const dice = this.#random(10_000) / 10;
    if (dice < 400) this.#take();
    else if (dice < 500) this.#acquireAt();
    else if (dice < 780) this.#release();
    else if (dice < 800) this.#releaseOwner();
    else if (dice < 815) this.#reserve();
    else if (dice < 835) this.#rebuild();
    else if (dice < 836) this.#sweep();
    else this.#pass();
    this.#model.pass(0);
    const stats = this.#pool.stats();
    const expected = this.#model.counts();
    for (const key of ["size", "free", "used", "reserved", "quarantined"] as const)
      assert.equal(stats[key], expected[key], key);
    assert.equal(stats.free + stats.used + stats.reserved + stats.quarantined, size);
  }

  #ip(offset: bigint): Ip {
    return ipFromBigInt(this.#family, this.#base + offset);
  }

  #offset(ip: Ip): bigint {
    return ipToBigInt(ip) - this.#base;
  }

  /**
   * Mostly near the start, where a large network is crowded too; at times anywhere, or just
   * outside.
   */
  #anyOffset(): bigint {
    const { size } = this.#model;
    const near = size < 4096n ? size : 4096n;
    const dice = this.#random(100);
    if (dice < 85) return BigInt(this.#random(Number(near)));
    if (dice < 90) return (BigInt(this.#random(2 ** 30)) * size) >> 30n;
    if (dice < 95) return size - 1n - BigInt(this.#random(Number(near)));
    return dice < 98 ? size : -1n;
  }

  #owner(): Owner {
    const kind = ownerKinds[this.#random(ownerKinds.length)] as Owner["kind"];
    return { kind, id: `owner-${this.#random(100)}` };
  }

  /** Takes the next address as podnetd does: by what a peek found. */
  #take(): void {
    const owner = this.#owner();
    const count = 1 + this.#random(3);
    const [expected, ...others] = this.#model.peek(count);
    const [found, ...rest] = this.#pool.peek(count);
    assert.equal(found === undefined ? undefined : this.#offset(found), expected);
    assert.deepEqual(
      rest.map((ip) => this.#offset(ip)),
      others,
    );
    if (found === undefined || expected === undefined) return;
    this.#pool.acquireAt(found, owner);
    this.#pool.seek(found);
    assert.equal(this.#model.acquireAt(expected, owner), "done");
    this.#model.cursor = expected;
  }

  #acquireAt(): void {
    const [offset, owner] = [this.#anyOffset(), this.#owner()];
    const code = codeOf(() => this.#pool.acquireAt(this.#ip(offset), owner));
    assert.equal(code, this.#model.acquireAt(offset, owner));
  }

  #release(): void {
    let offset = this.#anyOffset();
    // Mostly one that is held: one of the first few, which are the longest held.
    if (this.#random(10) > 0) {
      let skip = this.#random(16);
      for (const held of this.#model.used.keys()) {
        offset = held;
        if (skip-- === 0) break;
      }
    }
    const owner = this.#model.used.get(offset);
    let found: Owner | undefined;
    const code = codeOf(() => (found = this.#pool.release(this.#ip(offset))));
    assert.equal(code, this.#model.release(offset));
    assert.deepEqual(found, owner);
  }

  #releaseOwner(): void {
    const owner = this.#owner();
    const offsets = this.#model.held(owner);
    const released = this.#pool.releaseOwner(owner).map((ip) => this.#offset(ip));
    assert.deepEqual(released, offsets);
    for (const offset of offsets) this.#model.release(offset);
  }

  #reserve(): void {
    const first = this.#anyOffset();
    const long = this.#random(20) === 0 && this.#model.size > 4096n ? this.#model.size >> 3n : 4n;
    const last = first + (BigInt(this.#random(2 ** 20)) * long) / 2n ** 20n - 1n;
    const code = codeOf(() =>
      this.#pool.reserve({ first: this.#ip(first), last: this.#ip(last) }, "test"),
    );
    // An address outside is noticed first, as its offset is.
    const outside = last < 0n || first >= this.#model.size;
    assert.equal(code, outside ? "ADDRESS_OUT_OF_RANGE" : this.#model.reserve(first, last, "test"));
  }

  /**
   * Builds the pool anew, as podnetd does from its rows, at times without reservations that it had.
   * A large pool is built less often.
   */
  #rebuild(): void {
    const model = this.#model;
    if (this.#random(1 + (model.used.size >> 5)) > 0) return;
    if (this.#random(2) === 0)
      model.reserved = model.reserved.filter(({ fixed }) => fixed || this.#random(2) === 0);
    this.#pool = this.#open();
    for (const [offset, owner] of model.used) this.#pool.acquireAt(this.#ip(offset), owner);
    for (const [offset, since] of model.quarantinedOffsets)
      this.#pool.quarantine(this.#ip(offset), this.#wallAt(since));
    for (const { first, last, reason, fixed } of model.reserved)
      if (!fixed) this.#pool.reserve({ first: this.#ip(first), last: this.#ip(last) }, reason);
    if (model.cursor >= 0n) this.#pool.seek(this.#ip(model.cursor));
    this.#sweep();
  }

  /** The clock's time of a moment of the model. */
  #wallAt(moment: number): number {
    return this.#wall - (this.#model.time - moment);
  }

  #pass(): void {
    // The clock is set back now and then.
    const ms = this.#random(50) === 0 ? -this.#random(500) : this.#random(40);
    this.#wall += ms;
    this.#model.pass(ms);
  }

  /** All that both know, compared; with the counts it leaves no room for an address more. */
  #sweep(): void {
    const model = this.#model;
    for (const offset of [...model.used.keys(), ...model.quarantinedOffsets.keys()])
      this.#compare(offset);
    for (const { first, last } of model.reserved)
      for (const offset of [first - 1n, first, (first + last) / 2n, last, last + 1n])
        this.#compare(offset);
    for (let i = 0; i < 64; i++) this.#compare(this.#anyOffset());
    const count = Number(model.size < 4096n ? model.size : 64n);
    assert.deepEqual(
      this.#pool.peek(count).map((ip) => this.#offset(ip)),
      model.peek(count),
    );
  }

  #compare(offset: bigint): void {
    if (offset < 0n || offset >= this.#model.size) return;
    assert.deepEqual(this.#pool.lookup(this.#ip(offset)), this.#expected(offset));
  }

  #expected(offset: bigint): AddressState {
    const owner = this.#model.used.get(offset);
    if (owner !== undefined) return { state: "used", owner };
    const released = this.#model.quarantinedOffsets.get(offset);
    if (released !== undefined) {
      const since = this.#wallAt(released);
      return { state: "quarantined", since, until: since + this.#model.quarantineMs };
    }
    const reason = this.#model.reservation(offset)?.reason;
    return reason === undefined ? { state: "free" } : { state: "reserved", reason };
  }
}

for (const [index, text] of networks.entries()) {
  test(`${text} does what the model does`, (t) => {
    t.timeout(300_000);
    t.log(`PODNET_SEED=${seed}`);
    const random = new Random(seed + index);
    const run = new Run(parseCidr(text), quarantines[index % 3] as number, (below) =>
      random.below(below),
    );
    for (let i = 0; i < operations / networks.length; i++) run.step();
    t.pass();
  });
}
