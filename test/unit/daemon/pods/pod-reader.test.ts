import test from "ava";
import { configuration, openNode } from "../fixtures/node.ts";

test("a pod is read once until something is committed", async (t) => {
  using node = openNode(configuration({}));
  const { db, records } = node;
  const { id } = await node.create({ spec: { name: "one" } });
  const other = await node.create({ spec: { name: "two" } });
  const found = records.find("one");
  t.is(records.get(id), found);
  t.is(records.get(other.id)?.name as string, "two");
  t.is(records.get(id)?.name as string, "one");

  const before = records.get(id);
  db.run("UPDATE pods SET reason = 'changed' WHERE id = ?", id);
  t.is(records.get(id)?.reason, "changed");
  t.is(before?.reason, undefined);

  db.run("DELETE FROM pods WHERE id = ?", other.id);
  t.is(records.get(other.id), undefined);
});

test("what an open transaction has changed is seen in it, and not after it failed", async (t) => {
  using node = openNode(configuration({}));
  const { db, records } = node;
  const { id } = await node.create({ spec: { name: "one" } });
  t.is(records.find("one").reason, undefined);
  const failed = t.throws(() =>
    db.transaction(() => {
      db.run("UPDATE pods SET reason = 'changed' WHERE id = ?", id);
      t.is(records.get(id)?.reason, "changed");
      t.is(records.find("one").reason, "changed");
      throw new Error("not committed");
    }),
  );
  t.is(failed?.message, "not committed");
  t.is(records.get(id)?.reason, undefined);
  t.is(records.find("one").reason, undefined);
});
