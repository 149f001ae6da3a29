import test from "ava";
import { UsualDurations } from "../../../../daemon/events/usual-durations.ts";

test("work usually takes the median of its last durations, by its kind", (t) => {
  const usual = new UsualDurations();
  t.is(usual.of("boot"), undefined);
  usual.add("boot", 5000);
  t.is(usual.of("boot"), 5000);
  // One that took very long does not count for much.
  for (const ms of [4000, 90_000, 6000]) usual.add("boot", ms);
  t.is(usual.of("boot"), 6000);
  usual.add("clone", 100);
  t.deepEqual([usual.of("clone"), usual.of("boot")], [100, 6000]);
  for (let i = 0; i < 9; i++) usual.add("boot", 50);
  t.is(usual.of("boot"), 50);
});

test("only the kinds of the latest work are kept", (t) => {
  const usual = new UsualDurations();
  usual.add("first", 1);
  usual.add("second", 2);
  usual.add("first", 1);
  for (let i = 0; i < 255; i++) usual.add(`other ${i}`, 3);
  t.deepEqual([usual.of("first"), usual.of("second")], [1, undefined]);
});
