import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { backoffMs } from "../../../../daemon/reconcile/backoff.ts";
import { WorkQueue, type WorkQueueOptions } from "../../../../daemon/reconcile/work-queue.ts";
import { Metrics } from "../../../../daemon/main/metrics.ts";
import { degradedKeys } from "../../../../daemon/reconcile/queues.ts";
import { VirtualTime } from "../../../sim/time.ts";

const failure = (message = "not yet"): PodnetError =>
  new PodnetError("NETLINK_FAILED", message, { hint: "Wait" });

/** A queue whose time passes when the test says so. */
function opened(options: Partial<WorkQueueOptions<string>> = {}) {
  const time = new VirtualTime();
  const reported: string[] = [];
  const queue = new WorkQueue<string>({
    name: "pods",
    backoff: { firstMs: 1000, longestMs: 8000 },
    onDegraded: (key, { error }) => void reported.push(`${key}: ${error?.message}`),
    onRecovered: (key) => void reported.push(`${key}: recovered`),
    ...options,
    time: {
      monotonic: () => time.monotonicMs,
      after: (ms, body) => {
        const id = time.after(ms, body);
        return () => time.cancel(id);
      },
    },
  });
  /** Lets so much time pass, and all be done that is due by then. */
  const pass = async (ms: number): Promise<void> => {
    let over = false;
    time.after(ms, () => (over = true));
    await time.run(() => over);
  };
  return { queue, time, reported, pass };
}

/** Work that fails so many times, and when it was done. */
function failing(time: VirtualTime, times: number) {
  const at: number[] = [];
  const work = async (): Promise<void> => {
    at.push(time.monotonicMs);
    if (at.length <= times) throw failure();
  };
  return { at, work };
}

test("what is asked of a key while it waits is one run, what is asked while it runs is one run more", async (t) => {
  const { queue, pass } = opened();
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  let runs = 0;
  let together = 0;
  let most = 0;
  const work = async (): Promise<void> => {
    most = Math.max(most, ++together);
    await gates[runs++ === 0 ? 0 : 1].promise;
    together--;
  };
  for (let i = 0; i < 5; i++) queue.add("a", work, 300);
  queue.add("a", work, 100);
  await pass(99);
  t.is(runs, 0);
  await pass(2);
  t.is(runs, 1, "the soonest time counts");
  for (let i = 0; i < 5; i++) queue.add("a", work);
  await pass(1000);
  t.is(runs, 1);
  gates[0].resolve();
  await pass(1);
  t.is(runs, 2);
  gates[1].resolve();
  await pass(10_000);
  t.is(runs, 2);
  t.is(most, 1, "one worker a key");
  t.is(queue.size, 0);
});

test("what fails is tried again after twice as long each time, up to a longest; success starts anew", async (t) => {
  const { queue, time, pass } = opened();
  const first = failing(time, 6);
  queue.add("a", first.work);
  await pass(100_000);
  const waits = first.at.slice(1).map((at, i) => at - (first.at[i] ?? 0));
  t.is(waits.length, 6);
  for (const [i, wait] of waits.entries()) {
    const longest = Math.min(8000, 1000 * 2 ** i);
    t.true(wait <= longest && wait >= 0.8 * longest, `${wait} of ${longest}`);
  }
  const second = failing(time, 1);
  queue.add("a", second.work);
  await pass(1001);
  t.is(second.at.length, 2, "after a success the first wait is the shortest again");
});

test("jitter tries apart what failed together, and is alike in each run of one history", (t) => {
  const waits = ["a", "b", "c", "d"].map((key) =>
    backoffMs({ firstMs: 10_000, longestMs: 10_000 }, 1, key),
  );
  t.is(new Set(waits).size, 4);
  t.deepEqual(
    waits,
    ["a", "b", "c", "d"].map((key) => backoffMs({ firstMs: 10_000, longestMs: 10_000 }, 1, key)),
  );
});

test("a key's condition says since when it is degraded, how often it was tried, why, and when it is next", async (t) => {
  const { queue, time, pass, reported } = opened();
  let message = "one";
  const work = async (): Promise<void> => {
    if (message !== "") throw failure(message);
  };
  t.deepEqual(queue.condition("a"), { status: "ok" });
  await pass(50);
  queue.add("a", work);
  await pass(1);
  const condition = queue.condition("a");
  t.like(condition, { status: "degraded", sinceMs: 50, attempts: 1 });
  t.true(condition.status === "degraded" && (condition.nextMs ?? 0) > time.monotonicMs);
  await pass(3000);
  t.like(queue.condition("a"), { sinceMs: 50, attempts: 3 });
  t.deepEqual(reported, ["a: one"], "once for as long as it is alike");
  message = "two";
  await pass(8000);
  t.deepEqual(reported, ["a: one", "a: two"]);
  t.deepEqual(
    [...queue.degraded()].map(([key]) => key),
    ["a"],
  );
  message = "";
  await pass(20_000);
  t.deepEqual(reported, ["a: one", "a: two", "a: recovered"]);
  t.deepEqual(queue.condition("a"), { status: "ok" });
});

test("a key that fails or hangs holds up no other; only so many are worked on at a time", async (t) => {
  const { queue, pass } = opened({ atOnce: 2 });
  const hung = Promise.withResolvers<void>();
  const done: string[] = [];
  queue.add("hung", () => hung.promise);
  queue.add("failing", () => Promise.reject(failure()));
  for (const key of ["a", "b", "c"]) queue.add(key, async () => void done.push(key));
  await pass(1);
  t.deepEqual(done, ["a", "b", "c"]);
  const gate = Promise.withResolvers<void>();
  let begun = 0;
  for (const key of ["d", "e", "f"])
    queue.add(key, async () => {
      begun++;
      await gate.promise;
    });
  await pass(1);
  t.is(begun, 1, "one place is taken by what hangs");
  gate.resolve();
  hung.resolve();
  await pass(1);
  t.is(begun, 3);
});

test("who waits for a run gets the outcome of one that began after it was asked for", async (t) => {
  const { queue, pass, time } = opened();
  const { at, work } = failing(time, 1);
  const asked = queue.run("a", work);
  await t.throwsAsync(asked, { message: "not yet" });
  await queue.run("a", work);
  t.is(at.length, 2, "the backoff is not waited for");
  await pass(20_000);
  t.is(at.length, 2);
  const gate = Promise.withResolvers<void>();
  let runs = 0;
  const slow = async (): Promise<void> => {
    if (++runs === 1) await gate.promise;
  };
  queue.add("b", slow);
  await pass(1);
  const second = queue.run("b", slow);
  const third = queue.run("b", slow);
  gate.resolve();
  await Promise.all([second, third]);
  t.is(runs, 2);
});

test("what failed elsewhere is tried after the first wait; what is forgotten is not tried at all", async (t) => {
  const { queue, time, pass } = opened();
  const { at, work } = failing(time, 0);
  queue.failed("a", work, failure());
  t.like(queue.condition("a"), { status: "degraded", attempts: 1 });
  await pass(700);
  t.is(at.length, 0);
  await pass(301);
  t.is(at.length, 1);
  const gate = Promise.withResolvers<void>();
  let runs = 0;
  queue.add("b", async () => {
    runs++;
    await gate.promise;
    throw failure();
  });
  queue.failed("c", work, failure());
  await pass(1);
  queue.forget("b");
  queue.forget("c");
  t.deepEqual(queue.condition("c"), { status: "ok" });
  gate.resolve();
  await pass(60_000);
  t.is(runs, 1);
  t.is(at.length, 1);
  t.is(queue.size, 0);
  t.deepEqual(queue.condition("b"), { status: "ok" });
});

test("while it is paused nothing begins, and all that was asked for is done afterwards", async (t) => {
  const { queue, pass } = opened();
  const gate = Promise.withResolvers<void>();
  const done: string[] = [];
  queue.add("a", async () => {
    await gate.promise;
    done.push("a");
  });
  await pass(1);
  const pausing = queue.pause();
  const other = queue.pause();
  queue.add("b", async () => void done.push("b"));
  await pass(5000);
  t.deepEqual(done, []);
  gate.resolve();
  const resume = await pausing;
  t.deepEqual(done, ["a"]);
  resume();
  resume();
  await pass(1);
  t.deepEqual(done, ["a"], "the other pause goes on");
  (await other)();
  await pass(1);
  t.deepEqual(done, ["a", "b"]);
});

test("a close drops what waits for its time, and does what is due; nothing is tried again", async (t) => {
  const { queue, pass } = opened();
  const gate = Promise.withResolvers<void>();
  const done: string[] = [];
  queue.add("runs", async () => {
    await gate.promise;
    done.push("runs");
    throw failure();
  });
  queue.add("waits", async () => void done.push("waits"), 100);
  queue.failed("failed", async () => void done.push("failed"), failure());
  await pass(1);
  const caller = queue.run("runs", async () => void done.push("again"));
  const closing = queue.close();
  await t.throwsAsync(
    queue.run("a", async () => {}),
    { code: "CANCELLED" } as never,
  );
  gate.resolve();
  await closing;
  await caller;
  queue.add("late", async () => void done.push("late"));
  await pass(100_000);
  t.deepEqual(done, ["runs", "again"]);
  t.is(queue.size, 0);
});

test("a metric counts by queue what failed last and waits for another try", async (t) => {
  const metrics = new Metrics({ pods: () => [], pools: () => [] });
  metrics.followQueues(degradedKeys);
  const counted = async (): Promise<number> => {
    const { text } = await metrics.render();
    return Number(/^podnet_retrying\{queue="counters"\} (\d+)$/m.exec(text)?.[1]);
  };
  const { queue, time, pass } = opened({ name: "counters" });
  t.is(await counted(), 0);
  for (const key of ["once", "twice", "unwanted"])
    queue.add(key, failing(time, key === "once" ? 1 : 2).work);
  queue.add("works", async () => {});
  await pass(0);
  t.is(await counted(), 3);
  queue.forget("unwanted");
  t.is(await counted(), 2);
  await pass(1000);
  t.is(await counted(), 1);
  await queue.close();
  t.is(await counted(), 0, "nothing is tried again");
});
