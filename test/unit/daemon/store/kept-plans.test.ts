import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import type { PodId } from "../../../../core/names.ts";
import { plansDirectory } from "../../../../daemon/pods/store/kept-plans.ts";
import { configuration, openNode } from "../fixtures/node.ts";

async function kept() {
  const config = configuration({});
  const node = openNode(config);
  const row = await node.create();
  const path = join(plansDirectory(config), `${row.id}.json`);
  return { node, row, path, names: () => readdirSync(plansDirectory(config)) };
}

test("a kill while a plan is replaced leaves one of both, whole", async (t) => {
  const { node, row, path, names } = await kept();
  using _node = node;
  // Killed while the new one is written.
  writeFileSync(`${path}.new`, readFileSync(path, "utf8").slice(0, 100));
  t.deepEqual(node.kept.get(row.id)?.plan, row.plan);
  node.kept.removeOthers(new Set([row.id]));
  t.deepEqual(names(), [`${row.id}.json`]);
  // Killed once the earlier one is removed.
  renameSync(path, `${path}.new`);
  t.deepEqual(node.kept.get(row.id)?.plan, row.plan);
  node.kept.removeOthers(new Set([row.id]));
  t.deepEqual(node.kept.get(row.id)?.plan, row.plan, "it is the only one");
  node.records.keep(row);
  t.deepEqual(names(), [`${row.id}.json`]);
  t.deepEqual(node.kept.get(row.id)?.plan, row.plan);
});

test("nothing is left of the plan of a pod that has gone, and files of others stay", async (t) => {
  const { node, row, path, names } = await kept();
  using _node = node;
  writeFileSync(join(path, "../notes.txt"), "an administrator's");
  writeFileSync(`${path}.new`, "{}");
  node.kept.removeOthers(new Set());
  t.deepEqual(names(), ["notes.txt"]);
  node.records.keep(row);
  writeFileSync(`${path}.new`, "{}");
  node.kept.remove(row.id);
  t.deepEqual(names(), ["notes.txt"]);
  t.is(node.kept.get(row.id), undefined);
  t.is(node.kept.get("aaaaaaaaaaaa" as PodId), undefined);
});

test("a plan that cannot be kept is no error of the pod", async (t) => {
  const { node, row, path } = await kept();
  using _node = node;
  rmSync(path);
  mkdirSync(path);
  t.notThrows(() => node.records.keep(row));
  t.is(node.records.find(row.id).state, "running");
});
