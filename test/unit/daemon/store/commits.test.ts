import test, { type ExecutionContext } from "ava";
import { watchEffects } from "../../../../core/effect.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";

/** What is committed: flushed to the disk, and not. */
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
    async atAsync() {},
  });
  try {
    await work();
  } finally {
    watchEffects(undefined);
  }
  return commits;
}

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
  t.deepEqual(created.flushed, ["claim", "running"]);
  t.is(created.written.filter((what) => what === "insert runs").length, 1);
  t.is(created.written.filter((what) => what === "step").length, 7);

  const stopped = await commitsOf(node, () => node.pods.stop(id, { force: false }));
  t.deepEqual(stopped, { flushed: ["stopped"], written: ["stopping"] });

  const signal = new AbortController().signal;
  const progress = { started: () => {}, finished: () => {} };
  const started = await commitsOf(node, () => node.pods.start(id, { signal, progress }));
  t.deepEqual(started.flushed, ["creating", "running"]);

  const deleted = await commitsOf(node, () => node.pods.delete(id, { force: false }));
  t.deepEqual(deleted, { flushed: ["deleting", "forget"], written: [] });
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
