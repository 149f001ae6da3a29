import test from "ava";
import type { IfName } from "../../../../core/names.ts";
import { staying } from "../../../../daemon/pods/store/pod-plan.ts";
import { configuration, openNode } from "../fixtures/node.ts";
import { add, held, names, remove } from "./fixtures/live-changes.ts";
import { until } from "../../../lab/until.ts";

test("what was cut short is undone or completed by the next start", async (t) => {
  const config = configuration({});
  let id: string;
  {
    using node = openNode(config);
    ({ id } = await node.create());
    await node.pods.changes.changeInterface(id, add());
    // As a kill after the first commit leaves them: one being added, one being removed.
    await node.pods.change(id, async (live, row) => {
      const [first, second] = row.plan.interfaces;
      if (first === undefined || second?.nic === undefined) throw new Error("Two interfaces");
      node.records.replan(live, {
        ...row,
        plan: { ...row.plan, interfaces: [first, { ...second, leaving: true }] },
        text: "being removed",
      });
      const third = {
        ...second,
        position: 2,
        guestName: "eth2" as IfName,
        addresses: ["10.0.0.6/29" as never],
        nic: {
          ...second.nic,
          nicId: "nic2",
          mac: "52:54:00:00:00:99" as never,
          tap: "t2" as IfName,
        },
      };
      node.records.replan(live, {
        spec: node.pods.find(id).spec,
        plan: { ...live.plan, interfaces: [...live.plan.interfaces, third] },
        text: "being added",
        reverting: true,
      });
    });
    t.deepEqual(names(node, id), ["eth0 0", "eth1 1 leaving", "eth2 2"]);
    node.records.started(id as never, node.vm.record);
  }
  using node = openNode(config);
  await node.pods.recover("b");
  await until("the others to go", () => names(node, id).length === 1);
  t.deepEqual(names(node, id), ["eth0 0"]);
  t.is(node.pods.find(id).state, "running");
  t.is(node.pods.find(id).before, undefined);
  t.deepEqual(held(node), ["10.0.0.2"]);
  t.deepEqual(
    node.calls.filter((call) => call.startsWith("unplug")),
    ["unplug nic2", "unplug nic1"],
  );
  t.true(node.calls.includes("configure"), "the guest may have been notified");
  await node.pods.close(0);
});

test("a pod whose machine has gone is what it was before a change, without what was leaving", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.changes.changeInterface(id, add());
  node.keeps = true;
  await node.pods.changes.changeInterface(id, remove("eth1"));
  await node.pods.stop(id, { force: true });
  t.deepEqual(names(node, id), ["eth0 0"]);
  t.deepEqual(held(node), ["10.0.0.2"]);
  t.deepEqual(staying(node.pods.find(id).plan.interfaces).length, 1);
  await node.pods.delete(id, { force: true });
  t.deepEqual(held(node), []);
  await node.pods.close(0);
});
