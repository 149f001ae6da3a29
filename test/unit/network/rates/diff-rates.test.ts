import test from "ava";
import type { IfName } from "../../../../core/names.ts";
import { changesText } from "../../../../network/bridge/change-text.ts";
import type { PortDesired } from "../../../../network/model/desired.ts";
import type { ObservedLink, ObservedPod } from "../../../../network/model/observed.ts";
import { type PortRates, ratesText } from "../../../../network/model/rates.ts";
import { bucketsOf } from "../../../../network/rates/bucket.ts";
import { diffRates } from "../../../../network/rates/diff-rates.ts";
import { podFragment } from "../../../lab/network.ts";

const ifb = "pia" as IfName;
const port = (rates?: PortRates): PortDesired => {
  const [first] = podFragment(1).ports;
  if (first === undefined) throw new Error("The fragment has no port");
  return { ...first, ifb, ...(rates === undefined ? {} : { rates }) };
};
const link = (name: string, index: number, more: Partial<ObservedLink> = {}): ObservedLink => ({
  index,
  name: name as IfName,
  kind: "tun",
  alias: port().alias,
  group: 73,
  mtu: port().mtu,
  up: true,
  mac: undefined,
  master: 1,
  vlanFiltering: undefined,
  isolated: undefined,
  ...more,
});
const text = (
  rates: PortRates | undefined,
  tap: Partial<ObservedLink> = {},
  there?: ObservedLink,
): string[] => {
  const wanted = port(rates);
  const observed: ObservedPod = new Map(there === undefined ? [] : [[ifb, there]]);
  return changesText(diffRates(wanted, link(wanted.tap, 2, tap), observed));
};

test("a bandwidth is bytes of whole frames, with a burst of 50 ms unless it is given", (t) => {
  t.deepEqual(bucketsOf({ bitsPerSecond: 100e6 }, 1500), [
    { rate: 12_500_000, burst: 625_000, limit: 937_500 },
  ]);
  t.deepEqual(bucketsOf({ bitsPerSecond: 8000, burstBits: 8 }, 1500), [
    { rate: 1000, burst: 1518, limit: 65_536 },
  ]);
  t.deepEqual(bucketsOf(undefined, 1500), []);
});

test("a packet rate is a bucket in which each packet costs the same", (t) => {
  const [bucket, none] = bucketsOf({ packetsPerSecond: 10_000 }, 1500);
  t.is(none, undefined);
  t.deepEqual(bucket, {
    rate: 655_350_000,
    burst: 500 * 65_535,
    limit: 750 * 1518,
    leastCost: 65_535,
  });
  t.is(bucketsOf({ packetsPerSecond: 1 }, 1500)[0]?.burst, 65_535);
  t.is(bucketsOf({ bitsPerSecond: 1e6, packetsPerSecond: 100 }, 1500).length, 2);
});

test("the way in is the port's own queue, the way out a link of its own", (t) => {
  t.deepEqual(text(undefined), []);
  t.deepEqual(text({ toGuest: { bitsPerSecond: 8e6 } }), [
    `rate ~ ${port().tap} 1000000 bytes a second, 50000 at once`,
  ]);
  t.deepEqual(text({ fromGuest: { bitsPerSecond: 8e6, packetsPerSecond: 1000 } }), [
    `link + ${ifb} ifb mtu 1500 group 73 alias ${port().alias} up`,
    `rate ~ ${ifb} 1000000 bytes a second, 50000 at once`,
    `rate ~ ${ifb} inside 1000 packets a second, 50 at once`,
    `redirect + ${port().tap} to ${ifb}`,
  ]);
});

test("no limit any more: frames go by themselves before the link goes that they went by", (t) => {
  const root = { rate: 1, limit: 1, leastCost: 0, fullNanoseconds: 1 };
  const filters = [{ index: 2, kind: "u32", priority: 1, redirectsTo: 3 }];
  t.deepEqual(text(undefined, { queues: { root, filters } }, link(ifb, 3, { kind: "ifb" })), [
    `rate ~ ${port().tap} none`,
    `redirect - ${port().tap}`,
    `link - ${ifb}`,
  ]);
  // A filter to elsewhere is foreign.
  const elsewhere = [{ index: 2, kind: "u32", priority: 1, redirectsTo: 9 }];
  t.deepEqual(text(undefined, { queues: { filters: elsewhere } }, link(ifb, 3, { kind: "ifb" })), [
    `link - ${ifb}`,
  ]);
});

test("a link of that name that is not podnet's is refused", (t) => {
  for (const more of [{ kind: "dummy" }, { kind: "ifb", alias: "else" }])
    t.throws(() => text(undefined, {}, link(ifb, 3, more)), { code: "NAME_IN_USE" } as never);
});

test("rates are shown as the guest sees them, in the units of tc", (t) => {
  t.is(
    ratesText({
      toGuest: { bitsPerSecond: 100e6, burstBits: 8000, packetsPerSecond: 10_000 },
      fromGuest: { bitsPerSecond: 1500 },
    }),
    "in 100mbit, burst 1000 bytes, 10000 packets a second; out 1500bit",
  );
});
