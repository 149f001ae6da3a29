import test from "ava";
import fc from "fast-check";
import { type Cidr, type Ip, parseIp } from "../../../core/address.ts";
import { AddressPool, type AddressState } from "../../../ipallocator/pool.ts";
import { takeNext } from "./take.ts";

const owner = { kind: "pod", id: "a/0" } as const;

/** What each address of a /28 is. */
const contents = (pool: AddressPool): AddressState[] =>
  Array.from({ length: 16 }, (_, last) => pool.lookup(parseIp(`10.0.0.${last}`)));

test("a peek names what is handed out next, and takes nothing", (t) => {
  const operations = fc.array(fc.oneof(fc.constant("take" as const), fc.nat(12)), {
    maxLength: 40,
  });
  fc.assert(
    fc.property(operations, fc.integer({ min: 0, max: 20 }), (steps, count) => {
      let now = 0;
      const clock = { now: () => now, monotonic: () => now };
      const pool = new AddressPool({ network: "10.0.0.0/28" as Cidr, clock, quarantineMs: 7 });
      const held: Ip[] = [];
      for (const step of steps) {
        now++;
        if (step === "take") {
          const taken = takeNext(pool, owner);
          if (taken !== undefined) held.push(taken);
        } else if (held[step] !== undefined) pool.release(...(held.splice(step, 1) as [Ip]));
      }
      const before = contents(pool);
      const resting = before
        .flatMap((each, last) => (each.state === "quarantined" ? [{ ...each, last }] : []))
        .toSorted((a, b) => a.since - b.since)
        .map(({ last }) => parseIp(`10.0.0.${last}`));
      t.deepEqual(pool.quarantined(16), resting);
      t.deepEqual(pool.quarantined(1), resting.slice(0, 1));
      const peeked = pool.peek(count);
      t.deepEqual(contents(pool), before);
      t.is(peeked.length, Math.min(count, 14 - held.length));
      t.deepEqual(
        peeked,
        peeked.map(() => takeNext(pool, owner)),
      );
    }),
  );
});

test("a peek at the limit of leases names what rests, though others are free", (t) => {
  const clock = { now: () => 0, monotonic: () => 0 };
  const pool = new AddressPool({ network: "10.0.0.0/28" as Cidr, clock, maxLeases: 3 });
  const [first, second] = [takeNext(pool, owner), takeNext(pool, owner)] as [Ip, Ip];
  pool.release(second);
  pool.release(first);
  const peeked = pool.peek(10);
  t.deepEqual(peeked, ["10.0.0.3", second, first] as never);
  t.deepEqual(
    peeked,
    peeked.map(() => takeNext(pool, owner)),
  );
  t.deepEqual(pool.peek(1), []);
  t.throws(() => pool.acquireAt(parseIp("10.0.0.4"), owner), { code: "POOL_EXHAUSTED" });
});
