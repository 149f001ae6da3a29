import test, { type ExecutionContext } from "ava";
import { watchEffects } from "../../../../core/effect.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";

/** What is committed, in order: flushed at once, and not; `flush` there flushes all before it. */
interface Commits {
  readonly flushed: string[];
  readonly written: string[];
}

/** The commits that `work` makes, by name. */
async function commitsOf({ db }: Node, work: () => Promise<unknown>): Promise<Commits> {
  const commits: Commits = { flushed: [], written: [] };
  watchEffects({
    at({ boundary, what }, side) {
      if (boundary !== "commit" || side !== "after") return;
      const full = db.get("PRAGMA synchronous")?.["synchronous"] === 2;
      commits[full ? "flushed" : "written"].push(what);
    },
    async atAsync({ boundary, what }, side) {
      if (boundary === "commit" && side === "after") commits.written.push(what);
    },
  });
  try {
    await work();
  } finally {
    watchEffects(undefined);
  }
  return commits;
}

const withoutSteps = ({ written }: Commits): string[] => written.filter((what) => what !== "step");

function openRecordingNode(t: ExecutionContext): Node {
  const node = openNode(configuration({}));
  t.teardown(() => node.db.close());
  node.host.recordRun = (plan, record) => node.records.started(plan.podId, record);
  return node;
}

test.serial("a pod's life waits for the disk at most twice for each call", async (t) => {
  const node = openRecordingNode(t);
  let id = "";
  const created = await commitsOf(node, async () => void ({ id } = await node.create()));
  t.deepEqual(created.flushed, []);
  t.deepEqual(withoutSteps(created), ["claim", "flush", "insert runs", "running", "flush"]);
  t.is(created.written.filter((what) => what === "step").length, 7);

  const stopped = await commitsOf(node, () => node.pods.stop(id, { force: false }));
  t.deepEqual(stopped, { flushed: ["stopped"], written: ["stopping"] });

  const signal = new AbortController().signal;
  const progress = { started: () => {}, finished: () => {} };
  const started = await commitsOf(node, () => node.pods.start(id, { signal, progress }));
  t.deepEqual(withoutSteps(started), ["creating", "insert runs", "running", "flush"]);

  const deleted = await commitsOf(node, () => node.pods.delete(id, { force: false }));
  t.deepEqual(deleted, { flushed: ["forget"], written: ["deleting", "flush"] });
});

test.serial("calls that wait for the disk at one time share a flush", async (t) => {
  const node = openRecordingNode(t);
  const names = Array.from({ length: 5 }, (_, n) => `pod-${n}`);
  const created = await commitsOf(node, () =>
    Promise.all(names.map((name) => node.create({ spec: { name } }))),
  );
  t.is(created.written.filter((what) => what === "claim").length, names.length);
  t.is(created.written.filter((what) => what === "running").length, names.length);
  const flushes = created.written.filter((what) => what === "flush").length;
  // Alone, each create has two.
  t.true(flushes >= 2 && flushes < 2 * names.length, `${flushes}`);
});

test.serial("a commit during a flush waits for the next one", async (t) => {
  const { db } = openRecordingNode(t);
  const write = (value: string): unknown =>
    db.transaction(() => db.run("INSERT INTO meta VALUES (?1, '')", value), value, "boot");
  const seen: string[] = [];
  watchEffects({
    at() {},
    async atAsync(_effect, side) {
      seen.push(side);
    },
  });
  t.teardown(() => watchEffects(undefined));
  write("first");
  const first = db.flushed().then(() => seen.push("first"));
  await new Promise(setImmediate);
  write("second");
  await Promise.all([first, db.flushed().then(() => seen.push("second"))]);
  t.deepEqual(seen.filter((what) => what === "before").length, 2);
  t.true(seen.indexOf("first") < seen.lastIndexOf("after"), seen.join());
  await db.flushed();
  t.is(seen.filter((what) => what === "before").length, 2, "nothing was written since");
});

test.serial("what cannot be flushed fails its create, and leaves nothing", async (t) => {
  const node = openRecordingNode(t);
  watchEffects({
    at() {},
    async atAsync({ what }, side) {
      if (what === "flush" && side === "before")
        throw Object.assign(new Error("i/o error"), { code: "EIO" });
    },
  });
  t.teardown(() => watchEffects(undefined));
  await t.throwsAsync(node.create(), { code: "STATE_UNWRITABLE" });
  watchEffects(undefined);
  t.deepEqual(node.records.list(), []);
});

test.serial("an event is stored when a watcher hears it, and its number is its own", async (t) => {
  const node = openRecordingNode(t);
  const stop = new AbortController();
  const heard: number[] = [];
  const watching = (async () => {
    for await (const { cursor, kind } of node.journal.watch(0, stop.signal)) {
      heard.push(cursor);
      // What another process reads is there after a kill of this one.
      const [event] = node.stored(`SELECT kind FROM events WHERE cursor = ${cursor}`);
      t.is(event?.["kind"], kind);
      if (kind === "deleted") stop.abort();
    }
  })();
  const { id } = await node.create();
  await node.pods.delete(id, { force: false });
  await watching;
  t.deepEqual(
    heard,
    Array.from(heard, (_, index) => index + 1),
  );
  t.true(heard.length > 10);
});
