import test from "ava";
import { configuration, openNode } from "../fixtures/node.ts";
import { until } from "../../../lab/until.ts";

test("asking again for a create that was cut short is not answered with what is being undone", async (t) => {
  const config = configuration({});
  let first: string;
  {
    using node = openNode(config);
    ({ id: first } = await node.create({ requestId: "r1" }));
    // As a kill in the middle leaves it.
    node.db.run("UPDATE pods SET state = 'creating', established = 0");
    node.db.run("UPDATE requests SET done = 0");
  }
  using node = openNode(config);
  node.failing.add("remove");
  await node.pods.recover("b");
  await t.throwsAsync(node.create({ requestId: "r1" }), { code: "CANCELLED" });
  node.failing.clear();
  await until("the pod to go", () => node.pods.list().length === 0);
  const { id } = await node.create({ requestId: "r1" });
  t.not(id, first as never);
  t.is((await node.create({ requestId: "r1" })).id, id);
  await node.pods.close(0);
});
