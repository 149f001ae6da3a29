import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { systemClock } from "../../core/clock.ts";
import { migrations } from "../../daemon/store/migrations.ts";
import { parseStoredPlan } from "../../daemon/pod/pod-plan.ts";
import { configuration, type Node, openNode } from "./daemon-fixtures/node.ts";

const never = new AbortController().signal;
const progress = { started: () => {}, finished: () => {} };

const fixturePath = (schema: number): string =>
  join(import.meta.dirname, `../fixtures/state-${schema}.sql`);
/** States of earlier podnetds, each made by the code of its time. */
const fixture = (schema: number): string => readFileSync(fixturePath(schema), "utf8");
/** Schemas a podnetd has left a state of: not every step was ever the last one. */
const left = migrations.map((_, i) => i + 1).filter((schema) => existsSync(fixturePath(schema)));

/** Today's podnetd on a state that one of then has left. */
function openLeft(schema: number): Node {
  const config = configuration({ "network.cidr": "10.0.0.0/28", quarantine_s: "3600" });
  const raw = new DatabaseSync(join(config.stateDir, "state.db"));
  raw.exec(fixture(schema));
  const { last } = raw.prepare("SELECT max(freed_ms) AS last FROM leases").get() as {
    last: number;
  };
  raw.close();
  // As if it were a second later: what rested then rests still.
  return openNode(config, { ...systemClock, now: () => last + 1000 });
}

/** Tables and indexes as they are made, but for how that is written. */
const schemaOf = (node: Node): string[] =>
  node.db
    .all("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
    .map(({ sql }) => String(sql).replaceAll(/\s+/g, " "));

for (const schema of left) {
  test(`a state of schema ${schema} becomes what one made today is`, (t) => {
    using old = openLeft(schema);
    using fresh = openNode(configuration({}));
    t.deepEqual(schemaOf(old), schemaOf(fresh));
  });

  test(`a state of schema ${schema} is brought up to date, and every plan in it is read`, (t) => {
    using node = openLeft(schema);
    t.is(node.db.get("PRAGMA user_version")?.["user_version"], migrations.length);
    const names = [
      "creating",
      "deleting",
      "failed",
      "paused",
      "restarting",
      "running",
      "stopped",
      "stopping",
    ];
    t.deepEqual(
      node.pods
        .list()
        .map(({ name }) => String(name))
        .toSorted(),
      names,
    );
    for (const { plan } of node.db.all("SELECT plan FROM pods"))
      t.notThrows(() => parseStoredPlan(String(plan)));
    t.is(node.addresses.stats("default" as never).used, 8n);
    t.is(node.addresses.stats("default" as never).quarantined, 1n);
  });

  test(`the pods of a state of schema ${schema} are recovered: what ran runs, what was half done is undone`, async (t) => {
    using node = openLeft(schema);
    await node.pods.recover("b");
    t.deepEqual(
      node.pods
        .list()
        .map(({ name, state }) => `${name} ${state}`)
        .toSorted(),
      [
        "failed failed",
        // A row says what its machine does, and the one that is played here runs.
        "paused running",
        "restarting failed",
        "running running",
        "stopped stopped",
        "stopping stopped",
      ],
    );
    const { id } = node.pods.find("running");
    t.not(node.pods.live(id), undefined);
    t.is(node.addresses.stats("default" as never).used, 6n);
    // By its plan of then a pod of then is started and deleted.
    t.is((await node.pods.start("stopped", { signal: never, progress })).state, "running");
    for (const name of ["running", "paused", "stopped", "stopping", "restarting", "failed"])
      t.true((await node.pods.delete(name, { force: false })).existed);
    t.deepEqual(node.pods.list(), []);
    t.is((await node.create({ spec: { name: "new" } })).state, "running");
    await node.pods.close(0);
  });
}
