import test from "ava";
import fc from "fast-check";
import { type Ip, ipToBigInt, parseCidr, parseIp } from "../../../core/address.ts";
import { Bitmap } from "../../../ipallocator/bitmap.ts";
import { HashIndex, hashOffset, hashText } from "../../../ipallocator/hash-index.ts";
import { openSpace, parseIpv4 } from "../../../ipallocator/space.ts";
import { SparseSet } from "../../../ipallocator/sparse.ts";

/** Runs of taken offsets, as [first, length] and gaps between them. */
const runs = fc.array(fc.tuple(fc.nat(90), fc.integer({ min: 1, max: 2100 })), { maxLength: 30 });

test("a bitmap is a set: runs filled, holes made, searches agree, at any size", (t) => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 70_000 }),
      runs,
      fc.infiniteStream(fc.nat()),
      (size, plan, dice) => {
        const bitmap = new Bitmap(size);
        const model = new Uint8Array(size);
        let at = 0;
        for (const [gap, length] of plan) {
          const first = at + gap;
          const last = Math.min(size, first + length) - 1;
          if (first > last) break;
          bitmap.fill(first, last);
          model.fill(1, first, last + 1);
          at = last + 1;
        }
        for (let i = 0; i < 100; i++) {
          const offset = (dice.next().value as number) % size;
          if (model[offset] === 1) t.true(bitmap.free(offset));
          else t.true(bitmap.take(offset));
          model[offset] = 1 - (model[offset] as number);
          t.is(bitmap.has(offset), model[offset] === 1);
          const next = model.indexOf(0, offset);
          t.is(bitmap.nextFree(offset), next < 0 ? undefined : next);
        }
        t.is(bitmap.count, BigInt(model.reduce((sum, bit) => sum + bit, 0)));
      },
    ),
    { numRuns: 60 },
  );
});

test("a sparse set is the same set as a bitmap, wherever it lies", (t) => {
  fc.assert(
    fc.property(
      runs,
      fc.array(fc.nat(65_535), { minLength: 50, maxLength: 200 }),
      fc.bigInt({ min: 0n, max: 2n ** 100n }),
      (plan, offsets, base) => {
        const size = 65_536;
        const bitmap = new Bitmap(size);
        const sparse = new SparseSet(base + BigInt(size));
        let at = 0;
        for (const [gap, length] of plan) {
          const first = at + gap;
          const last = Math.min(size - 1, first + length - 1);
          if (first > last) break;
          bitmap.fill(first, last);
          sparse.fill(base + BigInt(first), base + BigInt(last));
          at = last + 1;
        }
        for (const [i, offset] of offsets.entries()) {
          const there = base + BigInt(offset);
          const method = i % 2 === 0 ? "take" : "free";
          t.is(sparse[method](there), bitmap[method](offset));
          t.is(sparse.has(there), bitmap.has(offset));
          const next = bitmap.nextFree(offset);
          t.is(sparse.nextFree(there), next === undefined ? undefined : base + BigInt(next));
        }
        t.is(sparse.count, bitmap.count);
      },
    ),
    { numRuns: 60 },
  );
});

test("a sparse set keeps no words for what is all free or all taken", (t) => {
  const set = new SparseSet(2n ** 64n);
  for (let offset = 0n; offset < 32n ** 3n; offset++) set.take(offset);
  t.is(set.words, 1);
  t.is(set.nextFree(0n), 32n ** 3n);
  for (let offset = 0n; offset < 32n ** 3n; offset++) set.free(offset);
  t.is(set.words, 0);
  set.fill(5n, 2n ** 63n);
  t.true(set.words < 30);
  t.is(set.nextFree(5n), 2n ** 63n + 1n);
  t.is(set.count, 2n ** 63n - 4n);
});

test("a full /8 of a bitmap: the end is the end, one hole is found from anywhere", (t) => {
  const bitmap = new Bitmap(2 ** 24);
  bitmap.fill(0, 2 ** 24 - 1);
  t.is(bitmap.nextFree(0), undefined);
  t.true(bitmap.free(9_999_999));
  t.is(bitmap.nextFree(0), 9_999_999);
  t.is(bitmap.nextFree(9_999_999), 9_999_999);
  t.is(bitmap.nextFree(10_000_000), undefined);
  t.true(bitmap.bytes < 2.1 * 2 ** 20);
  t.throws(() => new Bitmap(2 ** 24 + 1), { instanceOf: RangeError });
  t.throws(() => bitmap.fill(5, 2 ** 24), { instanceOf: RangeError });
});

test("a hash index finds what is in it, with colliding hashes, through growth and removal", (t) => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), fc.nat(300)), { maxLength: 600 }), (steps) => {
      const index = new HashIndex();
      const model = new Set<number>();
      // Few hashes, and such that wrap around the end of the table.
      const hash = (record: number): number => 0xfffffff0 + (record % 7) * 3;
      for (const [add, record] of steps) {
        if (add && !model.has(record)) {
          index.add(hash(record), record);
          model.add(record);
        } else if (!add && model.delete(record)) index.remove(hash(record), record);
        else t.is(index.find(hash(record), (r) => r === record) >= 0, model.has(record));
      }
      for (let record = 0; record <= 300; record++)
        t.is(
          index.find(hash(record), (r) => r === record),
          model.has(record) ? record : -1,
        );
    }),
    { numRuns: 100 },
  );
  t.throws(() => new HashIndex().remove(1, 1), { instanceOf: RangeError });
});

test("hashes of neighbours differ", (t) => {
  const numbers = new Set(Array.from({ length: 10_000 }, (_, i) => hashOffset(i) & 0xffff));
  const bigints = new Set(
    Array.from({ length: 10_000 }, (_, i) => hashOffset((1n << 80n) + BigInt(i)) & 0xffff),
  );
  const texts = new Set(Array.from({ length: 10_000 }, (_, i) => hashText(`pod-${i}`, 1) & 0xffff));
  // 10,000 into 65,536 by chance: about 9,270 different.
  for (const found of [numbers, bigints, texts]) t.true(found.size > 9_000);
});

test("the quick IPv4 parser takes what core takes", (t) => {
  const near = fc.stringMatching(/^[0-9]{0,4}(\.[0-9]{0,4}){2,4}[.x ]?$/);
  fc.assert(
    fc.property(fc.oneof(fc.ipV4(), near, fc.string()), (text) => {
      let expected = -1;
      try {
        const ip = parseIp(text);
        if (!ip.includes(":")) expected = Number(ipToBigInt(ip));
      } catch {
        // Not an address: -1.
      }
      t.is(parseIpv4(text), expected);
    }),
  );
});

test("offsets and addresses map to and fro in every kind of space", (t) => {
  for (const network of [
    "10.0.0.0/8",
    "192.168.123.0/24",
    "fd00::ff:0/112",
    "fd00::/64",
    "fc00::/8",
  ]) {
    const space = openSpace(parseCidr(network));
    for (const offset of [
      space.first,
      space.after(space.first),
      space.before(space.last),
      space.last,
    ]) {
      if (offset === undefined) throw new Error("no second address");
      t.is(space.offsetOf(space.ipAt(offset)), offset);
    }
    t.is(space.after(space.last), undefined);
    t.is(space.offsetOf((network.includes(":") ? "2001::1" : "11.0.0.0") as Ip), undefined);
  }
});
