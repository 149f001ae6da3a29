import test from "ava";
import { configuration, type Node, openNode } from "../fixtures/node.ts";

/** A node of three pods whose daemon has ended, in this state of their rows. */
async function ended(state: string) {
  const config = configuration({});
  using node = openNode(config);
  const ids = [];
  for (const name of ["one", "two", "three"]) ids.push((await node.create({ spec: { name } })).id);
  node.db.run(`UPDATE pods SET state = '${state}'`);
  if (state === "running") for (const id of ids) recordRun(node, id);
  await node.pods.close(0);
  return { config, ids };
}

function recordRun(node: Node, id: string): void {
  node.db.run(
    `INSERT INTO runs (pod_id, pid, start_time, boot_id, uid, run_dir, started_ms)
     VALUES (?, 1, '1', 'b', 0, '/nowhere', 1)`,
    id,
  );
}

const count = (calls: readonly string[], call: string): number =>
  calls.filter((each) => each === call).length;

for (const state of ["stopped", "failed"])
  test(`${state} pods without remains cost a start one look together, and others one each`, async (t) => {
    const { config, ids } = await ended(state);
    const [one = "", two = ""] = ids;
    using node = openNode(config);
    node.tidy.add(one).add(two);
    await node.pods.recover("b");
    t.is(count(node.calls, "look for remains"), 1);
    t.is(count(node.calls, "reap"), 1);
    t.is(node.connectionsEnded, 0, "they have ended with the machines");
    t.deepEqual(
      node.pods.list().map((row) => row.state),
      [state, state, state],
    );
    await node.pods.close(0);
  });

test("a stopped pod with a recorded run is looked for whatever a look at all says", async (t) => {
  const { config, ids } = await ended("stopped");
  using node = openNode(config);
  for (const id of ids) node.tidy.add(id);
  const [id = ""] = ids;
  recordRun(node, id);
  await node.pods.recover("b");
  t.is(count(node.calls, "reap"), 1);
  await node.pods.close(0);
});

test("a look at all stopped pods that fails has each of them looked for", async (t) => {
  const { config, ids } = await ended("stopped");
  using node = openNode(config);
  for (const id of ids) node.tidy.add(id);
  node.failing.add("look for remains");
  await node.pods.recover("b");
  t.is(count(node.calls, "reap"), 3);
  await node.pods.close(0);
});

test("only ports that are not as planned are written at a start, all if no look is possible", async (t) => {
  const { config, ids } = await ended("running");
  for (const fails of [false, true]) {
    using node = openNode(config);
    const [one = "", two = ""] = ids;
    node.tidy.add(one).add(two);
    if (fails) node.failing.add("look at ports");
    await node.pods.recover("b");
    t.is(count(node.calls, "look at ports"), 1);
    t.is(count(node.calls, "ensure"), fails ? 3 : 1);
    t.true(node.pods.list().every(({ state, reason }) => state === "running" && !reason));
    await node.pods.close(0);
  }
});

test("no agent is reached before it is its turn, and each is from then on", async (t) => {
  const { config } = await ended("running");
  using node = openNode(config);
  await node.pods.recover("b", { agentsLater: true });
  await new Promise((turn) => setImmediate(turn));
  t.deepEqual(
    node.pods.held().map(({ guest }) => guest),
    [undefined, undefined, undefined],
  );
  node.pods.reachAgents();
  await new Promise((turn) => setImmediate(turn));
  t.is(node.pods.held().filter(({ guest }) => guest !== undefined).length, 3);
  await node.pods.close(0);
});

test("a daemon that ends before the agents' turn lets go of its pods", async (t) => {
  const { config } = await ended("running");
  using node = openNode(config);
  await node.pods.recover("b", { agentsLater: true });
  await node.pods.close(0);
  node.pods.reachAgents();
  await new Promise((turn) => setImmediate(turn));
  t.deepEqual(node.pods.held(), []);
});
