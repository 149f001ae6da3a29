import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { GuestTime } from "../../../../guest-init/channel/guest-time.ts";

test("what is due is done when the guest has had its time, not before", async (t) => {
  const time = new GuestTime();
  const done: string[] = [];
  time.after(20, () => done.push("due"));
  time.after(20, () => done.push("given up"))[Symbol.dispose]();
  time.stop();
  time.after(0, () => done.push("begun while it stood"));
  const stoodAt = time.now();
  await delay(60);
  t.deepEqual(done, []);
  t.is(time.now(), stoodAt);
  t.true(time.stands);
  time.go();
  await delay(60);
  t.deepEqual(done.toSorted(), ["begun while it stood", "due"]);
  t.true(time.now() >= stoodAt + 20);
});

test("stopping twice stops once, and going on twice goes on once", async (t) => {
  const time = new GuestTime();
  time.go();
  time.stop();
  time.stop();
  time.go();
  t.false(time.stands);
  await time.going(AbortSignal.timeout(1000));
});

test("who waits for it to go on waits until then, or until the signal", async (t) => {
  const time = new GuestTime();
  time.stop();
  await t.throwsAsync(time.going(AbortSignal.timeout(10)), { code: "DEADLINE_EXCEEDED" });
  await t.throwsAsync(time.going(AbortSignal.abort()), { code: "CANCELLED" });
  const going = time.going(new AbortController().signal);
  time.go();
  await t.notThrowsAsync(going);
});

test("a limit counts the guest's time alone", async (t) => {
  const time = new GuestTime();
  const never = new AbortController().signal;
  using limit = time.limited(10, never);
  using kept = time.limited(10, never);
  time.stop();
  await delay(40);
  t.false(limit.signal.aborted);
  kept[Symbol.dispose]();
  time.go();
  await delay(40);
  t.is((limit.signal.reason as Error).name, "TimeoutError");
  t.false(kept.signal.aborted);
});
