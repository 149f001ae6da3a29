import test from "ava";
import type { LivePod } from "../../../../daemon/pods/lifecycle/live-pod.ts";
import type { PodPlan } from "../../../../daemon/pods/store/pod-plan.ts";
import type { PodRow } from "../../../../daemon/pods/store/pod-row.ts";
import { configuration, openNode } from "../fixtures/node.ts";

/** A pod with another address. */
function moved(plan: PodPlan, address: string): PodPlan {
  return {
    ...plan,
    interfaces: plan.interfaces.map((each) => ({ ...each, addresses: [address as never] })),
  };
}

const next = (live: LivePod, row: PodRow, address: string) => ({
  plan: moved(live.plan, address),
  spec: row.spec,
  text: `moved to ${address}`,
});

test("a running pod's plan is exchanged in one transaction, with its addresses, and read back", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.change(id, async (live, row) => {
    node.records.replan(live, next(live, row, "10.0.0.5/29"));
    t.is(live.plan.interfaces[0]?.addresses[0], "10.0.0.5/29" as never);
  });
  t.is(node.pods.find(id).plan.interfaces[0]?.addresses[0], "10.0.0.5/29" as never);
  t.is(node.pods.find(id).before, undefined);
  t.is(node.addresses.status("default" as never, "10.0.0.5" as never).kind, "held");
  t.is(node.addresses.stats("default" as never).quarantined, 1n, "the former rests");
  t.is(node.stored("SELECT * FROM leases WHERE freed_ms IS NULL").length, 1);
  await node.pods.close(0);
});

test("what a change may go back to stands in the row until it is complete", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.change(id, async (live, row) => {
    node.records.replan(live, { ...next(live, row, "10.0.0.5/29"), reverting: true });
    t.deepEqual(node.pods.find(id).before, { spec: row.spec, plan: row.plan });
    node.records.replan(live, { ...next(live, row, "10.0.0.6/29"), reverting: true });
    t.deepEqual(node.pods.find(id).before?.plan, row.plan, "the first of them");
    node.records.confirmed(live, "moved");
  });
  t.is(node.pods.find(id).before, undefined);
  await node.pods.close(0);
});

test("an address that is held is not taken, and everything stays as it was", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  const other = await node.create();
  const held = other.plan.interfaces[0]?.addresses[0] ?? "";
  await node.pods.change(id, async (live, row) => {
    const { plan } = live;
    t.throws(() => node.records.replan(live, next(live, row, held)));
    t.is(live.plan, plan);
  });
  t.is(node.pods.find(id).plan.interfaces[0]?.addresses[0], "10.0.0.2/29" as never);
  await node.pods.close(0);
});

for (const state of ["creating", "paused", "stopping", "stopped", "failed", "deleting"])
  test(`a pod that is ${state} is not changed, and the error says so and what to do`, async (t) => {
    using node = openNode(configuration({}));
    const { id, name } = await node.create();
    node.db.run("UPDATE pods SET state = ?", state);
    const error = await t.throwsAsync(
      node.pods.change(name, async () => t.fail("it was changed")),
      { code: "WRONG_STATE" },
    );
    t.is(error?.message, `Pod "${name}" is ${state} instead of running`);
    t.like(error, { details: { state } });
    t.truthy((error as unknown as { hint: string }).hint);
    node.db.run("UPDATE pods SET state = 'running'");
    await node.pods.change(id, async (live) => t.is(live.plan.podId, id));
    await node.pods.close(0);
  });
