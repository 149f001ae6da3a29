import { setImmediate as turn } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import test from "ava";
import { PodSchema } from "../../../../../api/gen/podnet/v1/pod_pb.ts";
import { PodSpecSchema } from "../../../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { validateSpec } from "../../../../../api/validate/validate.ts";
import type { Clock } from "../../../../../core/clock.ts";
import { PodnetError } from "../../../../../core/errors.ts";
import type { NetworkName } from "../../../../../core/names.ts";
import { podView } from "../../../../../daemon/api/views.ts";
import type { Config } from "../../../../../daemon/config/config.ts";
import { listNetworks } from "../../../../../daemon/networks/store.ts";
import { Activity } from "../../../../../daemon/pods/lifetime/activity.ts";
import { Lifetimes } from "../../../../../daemon/pods/lifetime/lifetimes.ts";
import type { WorkTime } from "../../../../../daemon/reconcile/work-queue.ts";
import { openLog } from "../../../../../linux/log.ts";
import { configuration, type Node, openNode } from "../../fixtures/node.ts";

/** A clock that goes on when a test says so, with the timers that go by it. */
class PlayedTime implements Clock, WorkTime {
  #nowMs = 0;
  #wallMs: number;
  readonly #timers = new Set<{ readonly dueMs: number; readonly body: () => void }>();

  constructor(wallMs = 1_700_000_000_000) {
    this.#wallMs = wallMs;
  }

  now = (): number => this.#wallMs;
  monotonic = (): number => this.#nowMs;

  after = (ms: number, body: () => void): (() => void) => {
    const timer = { dueMs: this.#nowMs + ms, body };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  };

  /** The clock on the wall is set. */
  set(byMs: number): void {
    this.#wallMs += byMs;
  }

  async pass(seconds: number): Promise<void> {
    const endMs = this.#nowMs + seconds * 1000;
    for (;;) {
      const [next] = [...this.#timers].toSorted((a, b) => a.dueMs - b.dueMs);
      if (next === undefined || next.dueMs > endMs) break;
      this.#go(next.dueMs);
      this.#timers.delete(next);
      next.body();
      await allDone();
    }
    this.#go(endMs);
    await allDone();
  }

  #go(toMs: number): void {
    this.#wallMs += toMs - this.#nowMs;
    this.#nowMs = toMs;
  }
}

async function allDone(): Promise<void> {
  for (let i = 0; i < 20; i += 1) await turn();
}

/** podnetd's pods with their lifetimes, over a host that is played. */
function open(config: Config = configuration({}), time = new PlayedTime()) {
  const node = openNode(config, time);
  const packets = { sent: 0, received: 0 };
  const state = { countable: true };
  const lifetimes = new Lifetimes({
    ...node,
    count: (pods) =>
      state.countable
        ? Promise.resolve(new Map(pods.map(({ plan }) => [plan.podId, { ...packets }])))
        : Promise.reject(new PodnetError("NETLINK_FAILED", "No counters")),
    clock: time,
    log: openLog({ component: "test", level: "silent" }),
    time,
  });
  const close = async (): Promise<void> => {
    await lifetimes[Symbol.asyncDispose]();
    await node.pods.close(0);
    node[Symbol.dispose]();
  };
  return { node, time, packets, state, close, config };
}

/** Waits for what has begun and takes real time. */
async function until(node: Node, states: Readonly<Record<string, string>>): Promise<boolean> {
  for (let waited = 0; waited < 3000; waited += 1) {
    const found = Object.fromEntries(node.pods.list().map(({ name, state }) => [name, state]));
    if (isDeepStrictEqual(found, states)) return true;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(JSON.stringify(node.pods.list().map(({ name, state }) => [name, state])));
}

test("a pod whose time is over is stopped, or deleted, in whatever state it is", async (t) => {
  const { node, time, close } = open();
  await node.create({ spec: { name: "stop", lifetime: { ttlS: 60 } } });
  await node.create({ spec: { name: "delete", lifetime: { ttlS: 60, ttlDelete: true } } });
  const gone = await node.create({
    spec: { name: "gone", lifetime: { ttlS: 60, ttlDelete: true } },
  });
  await node.create({ spec: { name: "other" } });
  await node.pods.stop(gone.id, { force: false });
  t.is(node.records.expiries.of(node.pods.find("stop").id), time.now() + 60_000);
  await time.pass(58);
  t.true(
    await until(node, { stop: "running", delete: "running", gone: "stopped", other: "running" }),
  );
  await time.pass(4);
  t.true(await until(node, { stop: "stopped", other: "running" }));
  const { id, reason } = node.pods.find("stop");
  t.is(reason, "its time of 60 s is over");
  t.is(node.records.expiries.of(id), undefined);
  await time.pass(3600);
  t.true(await until(node, { stop: "stopped", other: "running" }));
  await close();
});

test("a start by a caller begins a pod's time anew", async (t) => {
  const { node, time, close } = open();
  const { id } = await node.create({ spec: { name: "pod", lifetime: { ttlS: 60 } } });
  const options = {
    signal: new AbortController().signal,
    progress: { started: () => {}, finished: () => {} },
  };
  await time.pass(50);
  await node.pods.stop(id, { force: false });
  await node.pods.start(id, options);
  t.is(node.records.expiries.of(id), time.now() + 60_000);
  await time.pass(50);
  t.true(await until(node, { pod: "running" }));
  await time.pass(12);
  t.true(await until(node, { pod: "stopped" }));
  await node.pods.start(id, options);
  t.is(node.records.expiries.of(id), time.now() + 60_000, "also after it was over");
  await close();
});

test("a pod's time goes on while podnetd is away, and by the clock that was set", async (t) => {
  const first = open();
  for (const name of ["one", "two"])
    await first.node.create({ spec: { name, lifetime: { ttlS: 600, ttlDelete: true } } });
  await first.node.create({ spec: { name: "three", lifetime: { ttlS: 7200, ttlDelete: true } } });
  for (const name of ["one", "two", "three"]) await first.node.pods.stop(name, { force: false });
  await first.time.pass(5);
  const wall = first.time.now();
  await first.close();
  const second = open(first.config, new PlayedTime(wall + 599_000));
  t.true(await until(second.node, { three: "stopped" }));
  second.time.set(7_200_000);
  await second.time.pass(2);
  t.true(await until(second.node, {}));
  await second.close();
});

test("an end that fails is tried again, and holds up no other pod's", async (t) => {
  const { node, time, close } = open();
  await node.create({ spec: { name: "bad", lifetime: { ttlS: 60 } } });
  await node.create({ spec: { name: "good", lifetime: { ttlS: 62 } } });
  const { id } = node.pods.find("bad");
  node.db.run(
    `CREATE TRIGGER refused BEFORE UPDATE ON pods WHEN NEW.state = 'stopping' AND OLD.id = '${id}'
     BEGIN SELECT RAISE(ABORT, 'no room'); END`,
  );
  await time.pass(65);
  t.true(await until(node, { bad: "running", good: "stopped" }));
  node.db.run("DROP TRIGGER refused");
  await time.pass(30);
  t.true(await until(node, { bad: "stopped", good: "stopped" }));
  await close();
});

test("a pod that is idle for long is stopped, and says why; one that is used is not", async (t) => {
  const { node, time, packets, close } = open();
  const { id } = await node.create({ spec: { name: "pod", lifetime: { idleStopS: 60 } } });
  for (let i = 0; i < 10; i += 1) {
    await time.pass(50);
    packets.sent += 1;
    packets.received += 1;
  }
  await time.pass(10);
  t.true(await until(node, { pod: "running" }));
  const use = node.pods.live(id)?.activity.begin();
  await time.pass(600);
  t.is(node.pods.live(id)?.activity.idleMs, 0);
  use?.[Symbol.dispose]();
  await time.pass(50);
  t.true(await until(node, { pod: "running" }));
  await time.pass(20);
  t.true(await until(node, { pod: "stopped" }));
  t.is(node.pods.find(id).reason, "idle for 60 s");
  await close();
});

test("since when a pod is idle can be sent, whatever part of a millisecond it began at", async (t) => {
  const { node, time, close } = open();
  const { id } = await node.create({ spec: { name: "pod", lifetime: { idleStopS: 60 } } });
  await time.pass(10);
  const live = node.pods.live(id);
  for (const atMs of [20_000.123, 30_000.709_023_437_5])
    live?.activity.look(atMs, { sent: 0, received: 0 });
  t.true((live?.activity.idleMs ?? 0) % 1 > 0);
  const accelerators = { x86_64: "tcg", arm64: "tcg" } as const;
  const more = { run: undefined, process: undefined, expiresMs: undefined };
  const networks = listNetworks(node.db).map(({ definition }) => definition);
  const nowMs = 1_700_000_000_000;
  const view = podView(node.pods.find(id), { ...more, live, accelerators, networks, nowMs });
  t.is(fromBinary(PodSchema, toBinary(PodSchema, view)).idleSince?.seconds, 1_699_999_971n);
  await close();
});

test("a pod whose stop is cut short by a kill says why it stopped all the same", async (t) => {
  const first = open();
  const { id } = await first.node.create({ spec: { name: "pod", lifetime: { idleStopS: 60 } } });
  const seen: (string | undefined)[] = [];
  first.node.onCall = () => seen.push(first.node.pods.find(id).reason);
  await first.node.pods.stop(id, { force: false, reason: "idle for 60 s" });
  t.true(seen.includes("idle for 60 s"), "it is stored before anything ends");
  first.node.db.run("UPDATE pods SET state = 'stopping'");
  await first.close();
  const second = open(first.config);
  await second.node.pods.recover("b");
  t.like(second.node.pods.find(id), { state: "stopped", reason: "idle for 60 s" });
  await second.close();
});

test("a paused pod is not idle, nor is one whose traffic cannot be counted", async (t) => {
  const { node, time, state, close } = open();
  const { id } = await node.create({ spec: { name: "pod", lifetime: { idleStopS: 60 } } });
  await time.pass(10);
  await node.pods.pause(id);
  await time.pass(600);
  await node.pods.resume(id);
  await time.pass(50);
  t.true(await until(node, { pod: "running" }));
  state.countable = false;
  await time.pass(600);
  t.true(await until(node, { pod: "running" }));
  state.countable = true;
  // Retries had longer and longer pauses; the time of the failures counts as idle.
  await time.pass(90);
  t.true(await until(node, { pod: "stopped" }));
  await close();
});

test("broadcasts that reach a pod are no use of it, a packet that it sends is", (t) => {
  const activity = new Activity();
  let [sent, received] = [5, 5];
  const look = (atMs: number): number => activity.look(atMs, { sent, received });
  t.is(activity.idleMs, undefined);
  t.is(look(1000), 0);
  received += 20;
  t.is(look(3000), 2000);
  received += 21;
  t.is(look(5000), 0);
  t.is(look(9000), 4000);
  sent += 1;
  t.is(look(10_000), 0);
  // A caller that came and went between two looks.
  activity.begin()[Symbol.dispose]();
  t.is(activity.idleMs, 0);
  t.is(look(12_000), 0);
  const first = activity.begin();
  const second = activity.begin();
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  t.is(look(14_000), 0);
  t.is(look(16_000), 0, "the second caller is there");
  second[Symbol.dispose]();
  t.is(look(18_000), 2000);
  activity.rest();
  t.is(activity.idleMs, undefined);
  t.is(look(90_000), 0);
});

test("a lifetime that cannot be is refused with its field", (t) => {
  const spec = (lifetime: object) =>
    validateSpec(create(PodSpecSchema, { lifetime }), { network: "default" as NetworkName });
  t.is(spec({}).lifetime, undefined);
  t.deepEqual(spec({ ttlS: 1, idleStopS: 10 }).lifetime, {
    ttlMs: 1000,
    ttlDelete: false,
    idleStopMs: 10_000,
  });
  for (const [lifetime, field] of [
    [{ ttlS: 315_360_001 }, "lifetime.ttl_s"],
    [{ ttlDelete: true }, "lifetime.ttl_delete"],
    [{ idleStopS: 9 }, "lifetime.idle_stop_s"],
    [{ idleStopS: 4_000_000_000 }, "lifetime.idle_stop_s"],
  ] as const) {
    const thrown = t.throws<PodnetError>(() => spec(lifetime), { code: "INVALID_ARGUMENT" });
    t.is(thrown.field, field);
    t.truthy(thrown.hint);
  }
});
