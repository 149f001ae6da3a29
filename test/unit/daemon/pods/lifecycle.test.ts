import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import type { PodRow, PodState } from "../../../../daemon/pods/store/pod-row.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";
import { until } from "../../../lab/until.ts";

const becomes = (node: Node, as: (pod: PodRow) => boolean): Promise<PodRow> =>
  until(
    "a pod to become so",
    () => node.pods.list().find(as),
    undefined,
    () => JSON.stringify(node.pods.list()),
  );

/** Makes the store refuse a state, until the answer is called. */
function refuse(node: Node, state: PodState): () => void {
  node.db.run(
    `CREATE TRIGGER refused BEFORE UPDATE ON pods WHEN NEW.state = '${state}' AND OLD.state <> '${state}'
     BEGIN SELECT RAISE(ABORT, 'no room'); END`,
  );
  return () => node.db.run("DROP TRIGGER refused");
}

test("a pause that cannot be written down, or not be done, leaves a pod that runs", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.calls.length = 0;
  const admit = refuse(node, "paused");
  await t.throwsAsync(node.pods.pause(id), { message: /no room/ });
  t.deepEqual(
    node.calls.filter((call) => !call.startsWith("run-state")),
    ["pause", "resume"],
  );
  t.is(node.pods.find(id).state, "running");
  t.false(node.pods.live(id)?.time.stands);
  admit();
  node.failing.add("pause");
  await t.throwsAsync(node.pods.pause(id), { message: "pause fails" });
  t.is(node.pods.find(id).state, "running");
  t.false(node.pods.live(id)?.time.stands);
  node.failing.clear();
  t.is((await node.pods.pause(id)).state, "paused");
  t.true(node.pods.live(id)?.time.stands);
  await node.pods.close(0);
});

test("a resume that cannot be written down, or not be done, leaves a paused pod", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.pause(id);
  node.failing.add("resume");
  await t.throwsAsync(node.pods.resume(id), { message: "resume fails" });
  t.is(node.pods.find(id).state, "paused");
  t.true(node.pods.live(id)?.time.stands);
  node.failing.clear();
  const admit = refuse(node, "running");
  await t.throwsAsync(node.pods.resume(id), { message: /no room/ });
  t.is(node.pods.find(id).state, "paused");
  t.true(node.pods.live(id)?.time.stands);
  admit();
  node.calls.length = 0;
  t.like(await node.pods.resume(id), { state: "running", reason: undefined });
  t.deepEqual(node.calls.slice(0, 2), ["resume", "configure"]);
  await node.pods.close(0);
});

test("a guest that cannot be configured after a resume is reported, and runs", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.pause(id);
  node.failing.add("configure");
  const row = await node.pods.resume(id);
  t.is(row.state, "running");
  t.regex(row.reason ?? "", /^not configured again: configure fails/);
  await node.pods.close(0);
});

test("outside changes to a machine are shown, and its guest is configured after it", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.runs(false);
  t.true(node.pods.live(id)?.time.stands, "at once");
  await becomes(
    node,
    ({ state, reason }) =>
      state === "paused" && reason === "something else than podnetd stopped its machine (paused)",
  );
  node.calls.length = 0;
  node.runs(true);
  await becomes(node, ({ state, reason }) => state === "running" && reason === undefined);
  t.true(node.calls.includes("configure"));
  await node.pods.close(0);
});

test("a machine that is stopped over and over is looked at once a second", async (t) => {
  using node = openNode(configuration({}));
  await node.create();
  node.calls.length = 0;
  for (let i = 0; i < 1000; i++) node.runs(i % 2 === 1);
  node.runs(false);
  await becomes(node, ({ state }) => state === "paused");
  t.true(node.calls.filter((call) => call === "run-state").length <= 3, node.calls.join(" "));
  await node.pods.close(0);
});

test("a paused pod powers off having been resumed; with force it is ended as it is", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.pause(id);
  node.calls.length = 0;
  t.is((await node.pods.stop(id, { force: false })).state, "stopped");
  const ending = node.calls.filter((call) => /^(?:resume|power-off|stop|detach)/.test(call));
  t.deepEqual(
    ending.map((call) => call.split(" ")[0]),
    ["detach", "resume", "power-off", "stop"],
    "cut off before it goes on",
  );
  t.is((await node.pods.stop(id, { force: true })).state, "stopped", "it is already");

  await node.create({ spec: { name: "forced" } });
  await node.pods.pause("forced");
  node.calls.length = 0;
  t.is((await node.pods.stop("forced", { force: true })).state, "stopped");
  t.false(node.calls.includes("resume"));
  t.false(node.calls.includes("power-off"));
  // One that cannot be resumed is ended all the same.
  await node.create({ spec: { name: "stuck" } });
  await node.pods.pause("stuck");
  node.failing.add("resume");
  t.is((await node.pods.stop("stuck", { force: false })).state, "stopped");
  await node.pods.close(0);
});

test("a stop that cannot begin leaves what runs, and is followed as before", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  const admit = refuse(node, "stopping");
  await t.throwsAsync(node.pods.stop(id, { force: false }), { message: /no room/ });
  t.is(node.pods.find(id).state, "running");
  admit();
  node.runs(false);
  await becomes(node, ({ state }) => state === "paused");
  await node.pods.close(0);
});

test("a stop that does not come to its end says so, and can be asked for again", async (t) => {
  using node = openNode(configuration({}));
  const { id, plan } = await node.create();
  node.failing.add("remove");
  await t.throwsAsync(node.pods.stop(id, { force: false }), { message: "remove fails" });
  t.is(node.pods.find(id).state, "failed");
  node.failing.clear();
  t.is((await node.pods.stop(id, { force: false })).state, "stopped");
  t.deepEqual(node.pods.find(id).plan, plan, "all it was given");
  await node.pods.close(0);
});

test("a stop cut short is completed by the next podnetd", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.db.run("UPDATE pods SET state = 'stopping'");
  await node.pods.close(0);
  await node.pods.recover("b");
  t.is(node.pods.find(id).state, "stopped");
});

test("a machine that ends while it is paused is reported as any other", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.pause(id);
  node.pods.live(id)?.ended.abort(new PodnetError("QEMU_EXITED", "it is gone"));
  const { failure } = await becomes(node, ({ state }) => state === "failed");
  t.is(failure?.code, "QEMU_EXITED");
  await node.pods.close(0);
});

for (const [row, runs, wanted] of [
  ["running", false, "paused"],
  ["paused", true, "running"],
  ["paused", false, "paused"],
  ["running", true, "running"],
] as const)
  test(`a ${row} pod whose machine ${runs ? "runs" : "stands"} is taken over as ${wanted}`, async (t) => {
    const config = configuration({});
    using node = openNode(config);
    const { id } = await node.create();
    node.records.started(id, node.vm.record);
    if (row === "paused") await node.pods.pause(id);
    await node.pods.close(0);
    node.runs(runs);
    node.calls.length = 0;
    await node.pods.recover("b");
    t.is(node.pods.find(id).state, wanted);
    t.is(node.pods.live(id)?.time.stands, wanted === "paused");
    // What it is asked while it stands would lie in its channel.
    if (wanted === "paused") {
      await new Promise((resolve) => setTimeout(resolve, 100));
      t.false(node.calls.includes("ready"));
      node.runs(true);
    }
    if (row === "paused" || wanted === "paused")
      await becomes(node, ({ state, reason }) => state === "running" && reason === undefined);
    if (row !== wanted) t.true(node.calls.includes("configure"), "its clock is behind");
    await node.pods.close(0);
  });

/** The order in which machines have started, and their guests were configured. */
const starts = (node: Node): readonly string[] =>
  node.calls.filter((call) => call === "start" || call === "configure");

for (const [most, together] of [
  ["1", 1],
  ["3", 3],
] as const)
  test(`so many machines start at a time as may, and others wait: ${most}`, async (t) => {
    using node = openNode(configuration({ "limits.starts": most }));
    const pods = ["a", "b", "c"].map((name) => node.create({ spec: { name } }));
    t.deepEqual(
      (await Promise.all(pods)).map(({ state }) => state),
      ["running", "running", "running"],
    );
    t.is(starts(node).indexOf("configure"), together, starts(node).join());
    if (together === 1) {
      const one = ["start", "configure"];
      t.deepEqual(starts(node), [...one, ...one, ...one]);
    }
    await node.pods.close(0);
  });

test("a machine that cannot start makes room for the next", async (t) => {
  using node = openNode(configuration({ "limits.starts": "1" }));
  node.failing.add("start");
  const failed = ["a", "b"].map((name) => node.create({ spec: { name } }));
  for (const each of failed) await t.throwsAsync(each, { message: /start fails/ });
  node.failing.clear();
  t.is((await node.create({ spec: { name: "c" } })).state, "running");
  await node.pods.close(0);
});
