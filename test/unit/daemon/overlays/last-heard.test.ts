import test from "ava";
import { LastHeard } from "../../../../daemon/overlays/probes/last-heard.ts";
import type { OverlayRecord } from "../../../../daemon/overlays/store.ts";

/** What is written down, and a clock that is set by hand: wall clock and since this start. */
function stage() {
  const kept: { record: OverlayRecord } = { record: {} };
  const time = { now: 1_000_000, monotonic: 0 };
  const memory = {
    get record() {
      return kept.record;
    },
    note: (more: OverlayRecord) => void (kept.record = { ...kept.record, ...more }),
  };
  const clock = { now: () => time.now, monotonic: () => time.monotonic };
  const pass = (ms: number): void => {
    time.now += ms;
    time.monotonic += ms;
  };
  return { time, memory, pass, begin: () => new LastHeard(memory, clock) };
}

test("etcd that was lost before this start has been away since then", (t) => {
  const { time, memory, pass, begin } = stage();
  {
    using first = begin();
    t.is(first.staleMs, undefined);
    first.follow({ listed: true, staleSince: undefined });
    pass(5000);
    first.follow({ listed: true, staleSince: time.monotonic });
    pass(3000);
    t.is(first.staleMs, 3000);
  }
  t.is(memory.record.heardMs, 1_005_000);
  pass(60_000);
  time.monotonic = 0;
  using second = begin();
  second.follow({ listed: false, staleSince: 0 });
  pass(1000);
  t.is(second.staleMs, 64_000);
  second.follow({ listed: true, staleSince: undefined });
  t.is(second.staleMs, undefined);
  second.follow({ listed: true, staleSince: time.monotonic });
  pass(10);
  t.is(second.staleMs, 10, "of this start, once it was heard in it");
});

test("one that was heard to the end was heard then; a wall clock set back makes nothing negative", (t) => {
  const { time, memory, pass, begin } = stage();
  {
    using first = begin();
    first.follow({ listed: true, staleSince: undefined });
    pass(7000);
  }
  t.is(memory.record.heardMs, 1_007_000);
  time.now = 10;
  using second = begin();
  second.follow({ listed: false, staleSince: time.monotonic });
  pass(20);
  t.is(second.staleMs, 20);
});

test("one that was never heard has been away since the start", (t) => {
  const { time, memory, pass, begin } = stage();
  using heard = begin();
  heard.follow({ listed: false, staleSince: time.monotonic });
  pass(20);
  t.is(heard.staleMs, 20);
  t.is(memory.record.heardMs, undefined);
});
