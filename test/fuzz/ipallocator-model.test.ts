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
import { AddressPool } from "../../ipallocator/pool.ts";
import { Random, runSeed } from "./engine/random.ts";
import { ascending, ReferencePool } from "./ipallocator-reference.ts";

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
  #pool: AddressPool;
  #wall = 1_000_000;

  constructor(network: Cidr, random: (below: number) => number) {
    this.#random = random;
    this.#base = rangeOf(network).first;
    this.#family = familyOf(network);
    const quarantineMs = [0, 50, 1000][random(3)] as number;
    this.#model = new ReferencePool(network, quarantineMs);
    this.#pool = new AddressPool({ network, quarantineMs, clock: this.#clock });
  }

  readonly #clock = { now: () => this.#wall, monotonic: () => this.#wall };

  step(): void {
    const { size } = this.#model;
    const dice = this.#random(10_000) / 10;
    if (dice < 400) this.#acquire();
    else if (dice < 500) this.#acquireAt();
    else if (dice < 780) this.#release();
    else if (dice < 800) this.#releaseOwner();
    else if (dice < 815) this.#reserve();
    else if (dice < 835) this.#unreserve();
    else if (dice < 835.2) this.#restore();
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

  #acquire(): void {
    const owner = this.#owner();
    const expected = this.#model.acquire(owner);
    let found: bigint | undefined;
    const code = codeOf(() => (found = this.#offset(this.#pool.acquire(owner))));
    assert.equal(found, expected);
    assert.equal(code, expected === undefined ? "POOL_EXHAUSTED" : "done");
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
    assert.deepEqual(
      this.#pool.addressesOf(owner).map((ip) => this.#offset(ip)),
      offsets,
    );
    const released = this.#pool.releaseOwner(owner).map((ip) => this.#offset(ip));
    assert.deepEqual(released, offsets);
    // Released at one moment: which of them is the older is the pool's to say.
    const order =
      offsets.length < 2 ? [] : this.#pool.quarantined().map(({ ip }) => this.#offset(ip));
    offsets.sort((a, b) => order.indexOf(a) - order.indexOf(b));
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

  #unreserve(): void {
    const mine = this.#model.reserved.filter((span) => !span.fixed);
    const own = mine[this.#random(mine.length + 1)];
    const offset = this.#anyOffset();
    const range = own ?? { first: offset, last: offset };
    // At times only the second half of it.
    const first = this.#random(2) === 0 ? range.first : (range.first + range.last) / 2n;
    const span = { first: this.#ip(first), last: this.#ip(range.last) };
    const inside = first >= 0n && range.last < this.#model.size;
    assert.equal(
      codeOf(() => this.#pool.unreserve(span)),
      inside ? "done" : "ADDRESS_OUT_OF_RANGE",
    );
    if (inside) this.#model.unreserve(first, range.last);
  }

  #pass(): void {
    // The clock is set back now and then.
    const ms = this.#random(50) === 0 ? -this.#random(500) : this.#random(40);
    this.#wall += ms;
    this.#model.pass(ms);
  }

  #restore(): void {
    const snapshot = this.#pool.snapshot();
    const restored = AddressPool.restore(JSON.parse(JSON.stringify(snapshot)), {
      clock: this.#clock,
    });
    assert.deepEqual(restored.snapshot(), snapshot);
    this.#pool = restored;
    this.#sweep();
  }

  /** Everything both know, compared. */
  #sweep(): void {
    const model = this.#model;
    const leases = [...this.#pool.leases()].map(({ ip, owner }) => [this.#offset(ip), owner]);
    assert.deepEqual(
      leases,
      [...model.used].sort(([a], [b]) => ascending(a, b)),
    );
    const quarantinedOffsets = this.#pool.quarantined().map(({ ip }) => this.#offset(ip));
    assert.deepEqual(quarantinedOffsets, [...model.quarantinedOffsets.keys()]);
    const reserved = this.#pool
      .reservations()
      .map(({ first, last, reason }) => [this.#offset(first), this.#offset(last), reason]);
    assert.deepEqual(
      reserved,
      model.reserved
        .toSorted((a, b) => ascending(a.first, b.first))
        .map(({ first, last, reason }) => [first, last, reason]),
    );
    for (let i = 0; i < 64; i++) {
      const offset = this.#anyOffset();
      if (offset < 0n || offset >= model.size) continue;
      const state = model.used.has(offset)
        ? "used"
        : model.quarantinedOffsets.has(offset)
          ? "quarantined"
          : model.reservation(offset) === undefined
            ? "free"
            : "reserved";
      assert.equal(this.#pool.lookup(this.#ip(offset)).state, state);
    }
  }
}

for (const [index, text] of networks.entries()) {
  test(`${text} does what the model does`, (t) => {
    t.timeout(300_000);
    t.log(`PODNET_SEED=${seed}`);
    const random = new Random(seed + index);
    const run = new Run(parseCidr(text), (below) => random.below(below));
    for (let i = 0; i < operations / networks.length; i++) run.step();
    t.pass();
  });
}
