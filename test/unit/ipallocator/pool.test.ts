import test, { type ExecutionContext } from "ava";
import { type Cidr, type Ip, parseIp } from "../../../core/address.ts";
import { type ErrorCode, PodnetError } from "../../../core/errors.ts";
import type { Owner } from "../../../ipallocator/owner.ts";
import { AddressPool, type PoolOptions } from "../../../ipallocator/pool.ts";
import { takeNext } from "./take.ts";

const time = { ms: 0 };
const clock = { now: () => time.ms, monotonic: () => time.ms };
const a: Owner = { kind: "pod", id: "a" };
const b: Owner = { kind: "pod", id: "b" };

test.serial.beforeEach(() => {
  time.ms = 1_000_000;
});

function open(network: string, options: Partial<PoolOptions> = {}): AddressPool {
  return new AddressPool({ network: network as Cidr, clock, quarantineMs: 60_000, ...options });
}

function refused(t: ExecutionContext, code: ErrorCode, body: () => unknown): PodnetError {
  const error = t.throws(body, { instanceOf: PodnetError });
  t.is(error.code, code);
  t.truthy(error.hint);
  t.regex(error.message, /^[A-Z"].*[^.]$/);
  return error;
}

/** Takes until the pool is exhausted. */
function drain(pool: AddressPool, owner: Owner): Ip[] {
  const ips: Ip[] = [];
  for (let ip = takeNext(pool, owner); ip !== undefined; ip = takeNext(pool, owner)) ips.push(ip);
  return ips;
}

test.serial("a /24 hands out what runv would: .2 to .254 in order behind the gateway", (t) => {
  const pool = open("192.168.123.0/24", { gateway: parseIp("192.168.123.1") });
  const ips = drain(pool, a);
  t.deepEqual(
    ips,
    Array.from({ length: 253 }, (_, i) => `192.168.123.${i + 2}` as Ip),
  );
  t.deepEqual(pool.peek(1), []);
  t.deepEqual(pool.stats(), {
    size: 256n,
    free: 0n,
    used: 253n,
    reserved: 3n,
    quarantined: 0n,
  });
});

test.serial("the search goes on behind the last address handed out and wraps", (t) => {
  const pool = open("10.0.0.0/29", { quarantineMs: 0 });
  const take = (): string | undefined => takeNext(pool, a)?.slice("10.0.0.".length);
  t.deepEqual([take(), take(), take()], ["1", "2", "3"]);
  pool.release("10.0.0.1" as Ip);
  pool.release("10.0.0.2" as Ip);
  t.deepEqual([take(), take(), take()], ["4", "5", "6"]);
  t.deepEqual([take(), take()], ["1", "2"]);
  pool.release("10.0.0.6" as Ip);
  pool.release("10.0.0.1" as Ip);
  t.deepEqual([take(), take()], ["6", "1"]);
  pool.release("10.0.0.1" as Ip);
  t.is(take(), "1");
});

test.serial("an address asked for by name does not move the search", (t) => {
  const pool = open("10.0.0.0/24");
  pool.acquireAt(parseIp("10.0.0.100"), a);
  t.is(takeNext(pool, a), "10.0.0.1" as Ip);
  pool.acquireAt(parseIp("10.0.0.2"), b);
  t.is(takeNext(pool, a), "10.0.0.3" as Ip);
  pool.seek(parseIp("10.0.0.254"));
  t.is(takeNext(pool, a), "10.0.0.4" as Ip);
});

test.serial("edge prefixes: what has no room is refused, the smallest pools work", (t) => {
  for (const network of ["10.0.0.0/31", "10.0.0.1/32", "0.0.0.0/7", "fd00::/127", "fd00::1/128"]) {
    const error = refused(t, "INVALID_ARGUMENT", () => open(network));
    t.is(error.field, "network");
  }
  for (const network of ["10.0.0.1/24", "10.0.0.0", "pool"])
    refused(t, "ADDRESS_INVALID", () => open(network));
  t.deepEqual(drain(open("10.0.0.4/30"), a), ["10.0.0.5", "10.0.0.6"] as Ip[]);
  t.deepEqual(drain(open("fd00::4/126"), a), ["fd00::5", "fd00::6", "fd00::7"] as Ip[]);
  t.is(open("10.0.0.0/8").stats().free, 2n ** 24n - 2n);
  const large = open("2001:db8::/48", { gateway: parseIp("2001:db8::1") });
  t.is(takeNext(large, a), "2001:db8::2" as Ip);
  t.is(large.stats().free, 2n ** 80n - 3n);
  large.acquireAt(parseIp("2001:db8:0:ffff:ffff:ffff:ffff:ffff"), a);
  large.seek(parseIp("2001:db8:0:ffff:ffff:ffff:ffff:fffe"));
  t.is(takeNext(large, b), "2001:db8::3" as Ip);
});

test.serial("every refusal of an address says why", (t) => {
  const pool = open("10.0.0.0/24", { gateway: parseIp("10.0.0.1") });
  pool.acquireAt(parseIp("10.0.0.9"), a);
  const error = refused(t, "ADDRESS_IN_USE", () => pool.acquireAt(parseIp("10.0.0.9"), b));
  t.is(error.message, 'Address 10.0.0.9 is taken by pod "a"');
  t.deepEqual(error.details, { address: "10.0.0.9", holderKind: "pod", holderId: "a" });
  refused(t, "ADDRESS_IN_USE", () => pool.acquireAt(parseIp("10.0.0.9"), a));
  for (const [ip, reason] of [
    ["10.0.0.0", "network"],
    ["10.0.0.1", "gateway"],
    ["10.0.0.255", "broadcast"],
  ] as const) {
    const held = refused(t, "ADDRESS_RESERVED", () => pool.acquireAt(parseIp(ip), a));
    t.is(held.details["reason"], reason);
    refused(t, "ADDRESS_RESERVED", () => pool.quarantine(parseIp(ip), 0));
    refused(t, "ADDRESS_NOT_ALLOCATED", () => pool.release(parseIp(ip)));
  }
  for (const ip of ["10.0.1.0", "9.255.255.255", "fd00::1"]) {
    for (const call of [
      () => pool.acquireAt(parseIp(ip), a),
      () => pool.release(parseIp(ip)),
      () => pool.lookup(parseIp(ip)),
      () => pool.reserve(parseIp(ip), "x"),
      () => pool.seek(parseIp(ip)),
    ])
      refused(t, "ADDRESS_OUT_OF_RANGE", call);
  }
  refused(t, "ADDRESS_NOT_ALLOCATED", () => pool.release(parseIp("10.0.0.7")));
  pool.release(parseIp("10.0.0.9"));
  refused(t, "ADDRESS_NOT_ALLOCATED", () => pool.release(parseIp("10.0.0.9")));
  for (const text of ["10.0.0.9/24", "10.0.0.09", "", "10.0.0", "fd00::1%eth0"])
    refused(t, "ADDRESS_INVALID", () => pool.release(text as Ip));
  refused(t, "ADDRESS_INVALID", () => open("fd00::/64").release("fd00::1/64" as Ip));
  refused(t, "ADDRESS_OUT_OF_RANGE", () => open("fd00::/64").release("10.0.0.1" as Ip));
});

test.serial("owners are checked, and a foreign kind or an empty id is refused", (t) => {
  const pool = open("10.0.0.0/24");
  const ip = parseIp("10.0.0.2");
  refused(t, "INVALID_ARGUMENT", () => pool.acquireAt(ip, { kind: "pod", id: "" }));
  refused(t, "INVALID_ARGUMENT", () => pool.acquireAt(ip, { kind: "vm" as "pod", id: "x" }));
  refused(t, "INVALID_ARGUMENT", () => open("10.0.0.0/24", { quarantineMs: -1 }));
});

test.serial("an owner's addresses are found and released together, and no other's", (t) => {
  const pool = open("10.0.0.0/24");
  pool.acquireAt(parseIp("10.0.0.50"), a);
  takeNext(pool, b);
  takeNext(pool, a);
  pool.acquireAt(parseIp("10.0.0.77"), { kind: "overlay", id: "a" });
  t.deepEqual(pool.releaseOwner(a), ["10.0.0.2", "10.0.0.50"] as Ip[]);
  t.deepEqual(pool.releaseOwner(a), []);
  t.deepEqual(pool.lookup(parseIp("10.0.0.1")), { state: "used", owner: b });
  const overlay = { state: "used", owner: { kind: "overlay", id: "a" } } as const;
  t.deepEqual(pool.lookup(parseIp("10.0.0.77")), overlay);
  t.is(pool.stats().used, 2n);
  t.is(pool.stats().quarantined, 2n);
});

test.serial(
  "a released address rests, unless nothing else is left: then the oldest goes first",
  (t) => {
    const pool = open("10.0.0.0/29");
    const ips = drain(pool, a);
    t.is(ips.length, 6);
    for (const last of [4, 2, 5]) {
      time.ms += 10;
      t.deepEqual(pool.release(`10.0.0.${last}` as Ip), a);
    }
    t.deepEqual(pool.peek(6), ["10.0.0.4", "10.0.0.2", "10.0.0.5"] as Ip[]);
    const quarantinedOffsets = pool.lookup(parseIp("10.0.0.4"));
    t.deepEqual(quarantinedOffsets, { state: "quarantined", since: 1_000_010, until: 1_060_010 });
    t.is(takeNext(pool, b), "10.0.0.4" as Ip);
    // .2 has rested long enough, .5 has not; .2 counts as free now.
    time.ms = 1_060_020;
    t.is(pool.stats().free, 1n);
    t.is(pool.stats().quarantined, 1n);
    t.is(takeNext(pool, b), "10.0.0.2" as Ip);
    t.is(takeNext(pool, b), "10.0.0.5" as Ip);
    t.is(takeNext(pool, b), undefined);
  },
);

test.serial("a resting address is granted to who asks for it by name", (t) => {
  const pool = open("10.0.0.0/24");
  const ip = parseIp("10.0.0.1");
  t.is(takeNext(pool, a), ip);
  pool.release(ip);
  t.is(takeNext(pool, b), "10.0.0.2" as Ip);
  pool.acquireAt(ip, b);
  t.deepEqual(pool.lookup(ip), { state: "used", owner: b });
});

test.serial("a clock set back neither ends nor prolongs a quarantine", (t) => {
  const pool = open("10.0.0.0/24");
  const ip = parseIp("10.0.0.1");
  pool.acquireAt(ip, a);
  time.ms += 5_000;
  pool.release(ip);
  time.ms -= 3_600_000;
  t.is(pool.lookup(ip).state, "quarantined");
  time.ms += 59_999;
  t.is(pool.lookup(ip).state, "quarantined");
  time.ms += 1;
  t.is(pool.lookup(ip).state, "free");
  t.throws(() => pool.stats(Number.NaN), { instanceOf: RangeError });
});

test.serial("a moment that is none is refused, and time goes on", (t) => {
  const pool = open("10.0.0.0/29");
  const ip = parseIp("10.0.0.2");
  for (const moment of [Number.POSITIVE_INFINITY, Number.NaN])
    t.throws(() => pool.quarantine(ip, moment), { instanceOf: RangeError });
  pool.quarantine(ip, clock.now());
  t.is(pool.stats(clock.now() + 60_000).quarantined, 0n);
});

test.serial("a quarantine survives a restart during which the clock was set back", (t) => {
  const pool = open("10.0.0.0/24");
  const released = clock.now();
  time.ms -= 3_600_000;
  pool.quarantine(parseIp("10.0.0.1"), released);
  t.is(pool.stats().quarantined, 1n);
  time.ms += 59_999;
  t.is(pool.stats().quarantined, 1n);
  time.ms += 1;
  t.is(pool.stats().quarantined, 0n);
});

test.serial("ranges are reserved but for what is leased, and keep the first reason", (t) => {
  const pool = open("10.0.0.0/24", { gateway: parseIp("10.0.0.1") });
  const range = { first: parseIp("10.0.0.0"), last: parseIp("10.0.0.15") };
  pool.acquireAt(parseIp("10.0.0.12"), a);
  const error = refused(t, "ADDRESS_IN_USE", () => pool.reserve(range, "routers"));
  t.is(error.details["holderId"], "a");
  t.is(pool.stats().reserved, 3n);
  pool.release(parseIp("10.0.0.12"));
  pool.reserve(range, "routers");
  t.is(pool.stats().quarantined, 0n);
  t.is(pool.stats().reserved, 17n);
  for (const [last, reason] of [
    [0, "network"],
    [1, "gateway"],
    [2, "routers"],
    [15, "routers"],
    [255, "broadcast"],
  ] as const)
    t.deepEqual(pool.lookup(parseIp(`10.0.0.${last}`)), { state: "reserved", reason });
  t.is(takeNext(pool, a), "10.0.0.16" as Ip);
  const backwards = { first: range.last, last: range.first };
  refused(t, "INVALID_ARGUMENT", () => pool.reserve(backwards, "x"));
});

test.serial("half of a /64 reserved costs nothing and is stepped over", (t) => {
  const pool = open("fd00::/64");
  pool.reserve({ first: parseIp("fd00::1:0"), last: parseIp("fd00::8000:0:0:0") }, "half");
  t.is(pool.stats().free, 2n ** 64n - (2n ** 63n - 65536n + 1n) - 1n);
  pool.seek(parseIp("fd00::fffe"));
  t.is(takeNext(pool, a), "fd00::ffff" as Ip);
  t.is(takeNext(pool, a), "fd00::8000:0:0:1" as Ip);
});

test.serial("the lease limit is an error of its own and spares the resting", (t) => {
  const pool = open("fd00::/64", { maxLeases: 3 });
  const ips = drain(pool, a);
  t.is(ips.length, 3);
  const error = refused(t, "POOL_EXHAUSTED", () => pool.acquireAt(parseIp("fd00::99"), a));
  t.regex(error.message, /keeps 3 leases/);
  pool.release(ips[1] as Ip);
  pool.acquireAt(parseIp("fd00::99"), a);
  t.is(pool.lookup(ips[1] as Ip).state, "free");
  pool.release(ips[0] as Ip);
  t.is(takeNext(pool, b), ips[0] as Ip);
});

test.serial("rows in any order rebuild the quarantine oldest first", (t) => {
  const pool = open("10.0.0.0/29");
  for (const [last, since] of [
    [3, 500],
    [1, 900],
    [2, 100],
    [5, 500],
  ] as const)
    pool.quarantine(`10.0.0.${last}` as Ip, since);
  pool.quarantine("10.0.0.3" as Ip, 950);
  t.deepEqual(pool.peek(6, 1000), [
    "10.0.0.4",
    "10.0.0.6",
    "10.0.0.2",
    "10.0.0.3",
    "10.0.0.5",
    "10.0.0.1",
  ] as Ip[]);
});
