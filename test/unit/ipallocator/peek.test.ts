import test from "ava";
import fc from "fast-check";
import type { Cidr } from "../../../core/address.ts";
import { AddressPool } from "../../../ipallocator/pool.ts";

const owner = { kind: "pod", id: "a/0" } as const;

test("a peek names what the next acquires hand out, and takes nothing", (t) => {
  const operations = fc.array(fc.oneof(fc.constant("take" as const), fc.nat(12)), {
    maxLength: 40,
  });
  fc.assert(
    fc.property(operations, fc.integer({ min: 0, max: 20 }), (steps, count) => {
      let now = 0;
      const clock = { now: () => now, monotonic: () => now };
      const pool = new AddressPool({ network: "10.0.0.0/28" as Cidr, clock, quarantineMs: 7 });
      const held: string[] = [];
      for (const step of steps) {
        now++;
        if (step === "take") {
          if (pool.peek(1).length > 0) held.push(pool.acquire(owner));
        } else if (held[step] !== undefined) pool.release(held.splice(step, 1)[0] as never);
      }
      const before = pool.snapshot();
      const peeked = pool.peek(count);
      t.deepEqual(pool.snapshot(), before);
      t.is(peeked.length, Math.min(count, 14 - held.length));
      t.deepEqual(
        peeked,
        peeked.map(() => pool.acquire(owner)),
      );
    }),
  );
});

test("a peek at the limit of leases names what rests, though others are free", (t) => {
  const clock = { now: () => 0, monotonic: () => 0 };
  const pool = new AddressPool({ network: "10.0.0.0/28" as Cidr, clock, maxLeases: 3 });
  const [first, second] = [pool.acquire(owner), pool.acquire(owner)];
  pool.release(second);
  pool.release(first);
  const peeked = pool.peek(10);
  t.deepEqual(peeked, ["10.0.0.3", second, first] as never);
  t.deepEqual(
    peeked,
    peeked.map(() => pool.acquire(owner)),
  );
  t.deepEqual(pool.peek(1), []);
  t.throws(() => pool.acquire(owner), { code: "POOL_EXHAUSTED" });
});
