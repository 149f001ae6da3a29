import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test, { type ExecutionContext } from "ava";
import { isPodnetError } from "../../../../core/errors.ts";
import type { IfName, PodId } from "../../../../core/names.ts";
import type { Config } from "../../../../daemon/config/config.ts";
import { plansDirectory } from "../../../../daemon/pods/store/kept-plans.ts";
import { isDamaged } from "../../../../daemon/pods/store/pod-rows.ts";
import { listAnyPods } from "../../../../daemon/pods/store/pods.ts";
import {
  addressesOnBridge,
  filesOfPods,
  isNameServer,
  uidsOfPods,
} from "../../../../daemon/pods/store/stored-plans.ts";
import { damagedView } from "../../../../daemon/api/views.ts";
import { PodState } from "../../../../api/gen/podnet/v1/pod_pb.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";

const never = new AbortController().signal;
const progress = { started: () => {}, finished: () => {} };

/** Writes into the store as a damage would: past podnetd. */
function write(config: Config, sql: string, ...values: string[]): void {
  const raw = new DatabaseSync(join(config.stateDir, "state.db"));
  raw.prepare(sql).run(...values);
  raw.close();
}

/** What befalls the row of one pod, as SQL, and what is said of it. */
const damages: readonly (readonly [string, string, RegExp])[] = [
  ["its plan is no JSON", "plan = substr(plan, 1, 100)", /column "plan" is not JSON/],
  ["its plan is empty", "plan = '{}'", /plan has no version/],
  ["its plan is nothing", "plan = 'null'", /plan has no version/],
  [
    "its interfaces are nothing",
    "plan = json_set(plan, '$.interfaces', null)",
    /plan\.interfaces is no list/,
  ],
  ["an interface is text", "plan = json_set(plan, '$.interfaces[0]', 'x')", /\[0\] is no object/],
  [
    "its address is undefined",
    "plan = json_set(plan, '$.interfaces[0].addresses[0]', 'undefined')",
    /interfaces\[0\]\.addresses\[0\] is no address with a length/,
  ],
  [
    "a nameserver is undefined",
    'plan = json_set(plan, \'$.dns\', json(\'{"servers":["undefined"],"search":[],"options":[]}\'))',
    /plan\.dns\.servers\[0\] is no address/,
  ],
  [
    "a route leads nowhere",
    `plan = json_set(plan, '$.routes', json('[{"destination":7,"interface":"eth0"}]'))`,
    /plan\.routes\[0\]\.destination is no text/,
  ],
  [
    "its plan is one of an earlier podnetd's that was left as it was",
    "plan = json_set(plan, '$.version', 1)",
    /plan is of version 1 and makes no sense/,
  ],
  ["its disks are text", "plan = json_set(plan, '$.vm.disks', json_array('x'))", /plan\.vm\.disks/],
  ["its memory is text", "plan = json_set(plan, '$.vm.memoryMib', 'much')", /memoryMib is no num/],
  [
    "its machine's directory is everything",
    "plan = json_set(plan, '$.vm.runDir', '/')",
    /plan names "\/", which is none of its pod's/,
  ],
  [
    "its plan is another pod's",
    "plan = replace(plan, id, 'aaaaaaaaaaaa')",
    /plan is that of pod "victim" \(aaaaaaaaaaaa\)/,
  ],
  [
    "its version is no number",
    "plan = json_set(plan, '$.version', '2')",
    /plan's version is no number/,
  ],
  [
    "its version is a fraction",
    "plan = json_set(plan, '$.version', 1.5)",
    /plan's version is no number/,
  ],
  [
    "its version is 0",
    "plan = json_set(plan, '$.version', 0)",
    /plan's version is 0, which no podnetd writes/,
  ],
  [
    "its version is far ahead",
    "plan = json_set(plan, '$.version', 1000001)",
    /plan's version is 1000001, which no podnetd writes/,
  ],
  [
    "it publishes more ports than there are",
    `plan = json_set(plan, '$.published', json('[{"protocol":"tcp","hostPort":80,"podPort":80,"count":1000000000,"at":[]}]'))`,
    /plan\.published\[0\]\.count is no number of ports up to 4096/,
  ],
  ["its spec is a number", "spec = '5'", /spec is no object/],
  ["its spec has no labels", "spec = json_remove(spec, '$.labels')", /spec\.labels is no object/],
  ["what it goes back to is empty", "before = '{}'", /plan has no version/],
  ["its spans are nothing", "spans = 'null'", /spans are no list/],
  ["its guest is empty", "guest = '{}'", /guest has no api/],
  ["what it was seen to have is empty", "observed = '{}'", /observed\.hostname is no text/],
  ["its failure is empty", "failure = '{}'", /an error is not as podnetd writes it/],
];

/**
 * A node of an earlier podnetd's, with two pods that run; the row of the one called `victim` is
 * damaged.
 */
async function damaged(sql: string, config = configuration({})): Promise<Config> {
  using node = openNode(config);
  for (const name of ["good", "victim"]) {
    const { id } = await node.create({ spec: { name } });
    node.records.started(id, node.vm.record);
  }
  await node.pods.close(0);
  write(config, `UPDATE pods SET ${sql} WHERE name = 'victim'`);
  return config;
}

/** The other pod and all that asks for every pod work. */
async function othersWork(t: ExecutionContext, node: Node): Promise<void> {
  const { db, pods } = node;
  t.deepEqual(
    pods.list().map(({ name, state }) => `${name} ${state}`),
    ["good running"],
  );
  t.is(pods.running("good").plan.interfaces.length, 1);
  t.true(uidsOfPods(db).has(node.vm.record.uid), "users of machines that run are taken");
  t.true(filesOfPods(db).some(({ pod }) => pod === "good"));
  t.false(isNameServer(db, "203.0.113.1" as never));
  t.deepEqual(addressesOnBridge(db, "br-other" as IfName), []);
  const third = await node.create({ spec: { name: "third" } });
  t.is(third.state, "running");
  await pods.stop("third", { force: true });
  await pods.delete("third", { force: false });
}

for (const [what, sql, said] of damages)
  test(`${what}: that pod alone is refused, and a delete by force ends it`, async (t) => {
    const config = await damaged(sql);
    using node = openNode(config);
    const { pods, records } = node;
    await pods.recover("b");
    t.deepEqual(
      node.calls.filter((call) => /^(stop|reap|remove|detach)/.test(call)),
      [],
      "its machine runs on",
    );
    await othersWork(t, node);
    node.calls.length = 0;

    const row = listAnyPods(node.db).find(isDamaged);
    if (row === undefined) throw new Error("It is taken for good");
    t.regex(row.damage.message, /^The record of pod "victim" is damaged: /);
    t.regex(row.damage.message, said);
    t.regex(row.damage.hint ?? "", /podnet delete --force victim/);
    const view = damagedView(row);
    t.like(view, { id: row.id, name: "victim", state: PodState.FAILED });
    t.regex(view.reason, said);

    const signal = { signal: never, progress };
    for (const ask of [
      () => pods.start("victim", signal),
      () => pods.stop("victim", { force: false }),
      () => pods.stop(row.id, { force: true }),
      () => pods.pause("victim"),
      () => pods.detach("victim", { force: true }),
      () => pods.delete("victim", { force: false }),
    ])
      await t.throwsAsync(ask, { code: "STATE_CORRUPT" });
    const error = t.throws(() => pods.find("victim"), { code: "STATE_CORRUPT" });
    t.true(isPodnetError(error));
    t.deepEqual(node.calls, [], "nothing of it was touched");
    t.true(records.ids().has(row.id), "what bears its id is not left over");

    t.like(await pods.delete("victim", { force: true }), { id: row.id, existed: true });
    t.regex(node.calls[0] ?? "", /^detach pn/, "by what is kept of it");
    t.true(node.calls.includes("reap"));
    t.deepEqual(node.stored("SELECT name FROM pods"), [{ name: "good" }]);
    t.deepEqual(
      node.stored("SELECT owner_id FROM leases WHERE freed_ms IS NULL AND owner_kind = 'pod'")
        .length,
      1,
      "its address is given back",
    );
    t.is(node.kept.get(row.id), undefined);
    await pods.close(0);
  });

test("a plan of a newer podnetd is no damage: the node refuses to start", async (t) => {
  const config = await damaged("plan = json_set(plan, '$.version', 3)");
  using node = openNode(config);
  await t.throwsAsync(node.pods.recover("b"), {
    code: "STATE_NEWER",
    message: "A stored plan has version 3, this podnetd knows 2",
  });
});

test("of a damaged pod of which no plan is kept other rows and its directories say what goes", async (t) => {
  const config = await damaged("plan = '{}', spec = '{}'");
  rmSync(plansDirectory(config), { recursive: true });
  using node = openNode(config);
  const [{ id } = { id: "" }] = listAnyPods(node.db).filter(isDamaged);
  const disks = join(config.disksDir, id);
  mkdirSync(disks, { recursive: true });
  writeFileSync(join(disks, "0.qcow2"), "what it wrote");
  await node.pods.recover("b");
  const reaped: unknown[] = [];
  node.host.driver.reap = (record, vm) => Promise.resolve(void reaped.push([record, vm.runDir]));
  node.calls.length = 0;
  await node.pods.delete(id, { force: true });
  t.deepEqual(
    node.calls.filter((call) => /^(detach|remove)/.test(call)),
    [`detach pn${id}0`, "remove"],
  );
  t.deepEqual(reaped, [[undefined, join(config.podsDir, id)]], "nothing by a pid of unknown owner");
  t.false(existsSync(disks));
  t.is(node.addresses.stats(config.network.name).used, 1n);
  t.deepEqual(
    node.pods.listAny().map(({ name }) => name),
    ["good"],
  );
  await node.pods.close(0);
});

test("what cannot be undone of a damaged pod is written down, so that a start may end its machine", async (t) => {
  const config = await damaged("plan = '{}'");
  using node = openNode(config);
  const [{ id } = { id: "" as PodId }] = listAnyPods(node.db).filter(isDamaged);
  node.failing.add("reap");
  await node.pods.delete("victim", { force: true });
  t.true(node.kept.get(id)?.left);
  t.deepEqual(node.stored("SELECT name FROM pods"), [{ name: "good" }]);
  await node.pods.close(0);
});

test("a damaged pod keeps its name and addresses until it is deleted", async (t) => {
  const config = await damaged("plan = '{}'");
  using node = openNode(config);
  await node.pods.recover("b");
  await t.throwsAsync(node.create({ spec: { name: "victim" } }), { code: "NAME_IN_USE" });
  const error = await t.throwsAsync(
    node.create({ spec: { interfaces: [{ address: "10.0.0.3" }] } }),
    { code: "ADDRESS_IN_USE" },
  );
  t.regex(error?.message ?? "", /victim/);
  await node.pods.close(0);
});

test("a record that is damaged while its pod runs ends nothing; a delete by force ends what podnetd holds of it", async (t) => {
  const config = configuration({});
  using node = openNode(config);
  const { id } = await node.create({ spec: { name: "victim" } });
  write(config, "UPDATE pods SET plan = '{}'");
  node.runs(false);
  node.readyAgain();
  await new Promise((resolve) => setTimeout(resolve, 50));
  t.deepEqual(
    node.pods.listAny().map(({ name }) => name),
    ["victim"],
  );
  await t.throwsAsync(node.pods.delete(id, { force: false }), { code: "STATE_CORRUPT" });
  t.truthy(node.pods.live(id));
  node.calls.length = 0;
  await node.pods.delete(id, { force: true });
  t.true(node.calls.includes("stop"));
  t.is(node.pods.live(id), undefined);
  t.deepEqual(node.stored("SELECT name FROM pods"), []);
  await node.pods.close(0);
});

test("a row is parsed once, and whatever is changed in it is noticed at the next look", async (t) => {
  const config = configuration({});
  using node = openNode(config);
  const { id, name } = await node.create();
  const find = () => node.records.find(id);
  t.is(find().plan, find().plan);
  const change = (set: string): void => {
    node.db.run(`UPDATE pods SET ${set} WHERE id = ?`, id);
  };
  change("spec = json_set(spec, '$.labels', json('{\"tier\": \"web\"}'))");
  t.deepEqual(find().spec.labels, { tier: "web" });
  change("plan = json_set(plan, '$.podId', 'aaaaaaaaaaaa')");
  t.throws(find, { code: "STATE_CORRUPT" });
  change(`plan = json_set(plan, '$.podId', '${id}')`);
  t.is(find().plan.podId, id);
  change("name = 'another'");
  t.throws(find, { code: "STATE_CORRUPT" });
  change(`name = '${name}'`);
  change("observed = '{'");
  t.throws(find, { code: "STATE_CORRUPT" });
});
