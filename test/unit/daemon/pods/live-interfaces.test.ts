import { guestConfigOf } from "../../../../daemon/pods/guest/guest-config.ts";
import test from "ava";
import { configuration, openNode } from "../fixtures/node.ts";
import { add, held, leavesNothing, names, ports, remove } from "./fixtures/live-changes.ts";
import { until } from "../../../lab/until.ts";

test("an interface is added after its rows, and removed after its rows; the others are not touched", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.calls.length = 0;
  const seen: unknown[] = [];
  node.onCall = (call) =>
    seen.push([call, node.stored("SELECT count(*) AS n FROM interfaces")[0]?.["n"]]);
  await node.pods.changes.changeInterface(id, add());
  const tap = node.pods.find(id).plan.interfaces[1]?.nic?.tap;
  t.deepEqual(seen, [
    [`open ${tap}`, 2],
    ["ensure", 2],
    // (Of both: at either port of the bridge, the guest may answer for the address of the other.)
    ["ensure", 2],
    ["plug nic1", 2],
    [`close ${tap}`, 2],
    ["configure", 2],
  ]);
  t.deepEqual(names(node, id), ["eth0 0", "eth1 1"]);
  t.deepEqual(held(node), ["10.0.0.2", "10.0.0.3"]);
  t.is(node.pods.find(id).before, undefined);
  seen.length = 0;
  await node.pods.changes.changeInterface(id, remove("eth1"));
  t.deepEqual(seen, [
    ["ensure", 2],
    [`detach ${tap}`, 2],
    ["unplug nic1", 2],
    ["remove", 2],
  ]);
  t.deepEqual(names(node, id), ["eth0 0"]);
  t.deepEqual(held(node), ["10.0.0.2"]);
  t.is(node.pods.find(id).spec.interfaces.length, 1);
  await node.pods.close(0);
});

test("the smallest position that is free is taken, and names stay what they are", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.changes.changeInterface(id, add());
  await node.pods.changes.changeInterface(id, add());
  await node.pods.changes.changeInterface(id, remove("eth1"));
  t.deepEqual(names(node, id), ["eth0 0", "eth2 2"]);
  await node.pods.changes.changeInterface(id, add({ interface: { guestName: "lan" } }));
  t.deepEqual(names(node, id), ["eth0 0", "eth2 2", "lan 1"]);
  t.deepEqual(
    node.pods.find(id).spec.interfaces.map(({ guestName }) => guestName),
    ["eth0", "eth2", "lan"] as never,
  );
  await t.throwsAsync(
    node.pods.changes.changeInterface(id, add({ interface: { guestName: "lan" } })),
    {
      code: "INVALID_ARGUMENT",
    },
  );
  await node.pods.close(0);
});

for (const [call, code] of [
  ["open", "SYSCALL_FAILED"],
  ["ensure", "SYSCALL_FAILED"],
  ["plug", "SYSCALL_FAILED"],
  ["configure", "SYSCALL_FAILED"],
] as const)
  test(`an add whose ${call} fails leaves nothing`, async (t) => {
    using node = openNode(configuration({}));
    const calls = await leavesNothing(
      t,
      node,
      () => {
        node.failing.add(call);
        return add();
      },
      code,
    );
    t.true(calls.includes("unplug nic1"), calls.join(", "));
    node.failing.clear();
    const id = node.pods.list()[0]?.id ?? "";
    await node.pods.changes.changeInterface(id, add());
    t.deepEqual(names(node, id), ["eth0 0", "eth1 1"]);
    await node.pods.close(0);
  });

test("a guest that does not let go: the slot is taken until it does, and the address rests from then on", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.changes.changeInterface(id, add());
  node.keeps = true;
  const row = await node.pods.changes.changeInterface(id, remove("eth1"));
  t.deepEqual(names(node, id), ["eth0 0", "eth1 1 leaving"]);
  t.deepEqual(held(node), ["10.0.0.2", "10.0.0.3"]);
  t.is(ports(node, id).ports.length, 1, "it is off its bridge");
  t.is(guestConfigOf(row).interfaces.length, 1);
  await t.throwsAsync(node.pods.changes.changeInterface(id, remove("eth1")), {
    code: "INTERFACE_NOT_FOUND",
  });
  node.keeps = false;
  await node.pods.changes.changeInterface(id, add());
  t.deepEqual(names(node, id), ["eth0 0", "eth1 1 leaving", "eth2 2"]);
  node.letGo("nic1");
  await until("eth1 to go", () => names(node, id).length === 2);
  t.deepEqual(names(node, id), ["eth0 0", "eth2 2"]);
  t.deepEqual(held(node), ["10.0.0.2", "10.0.0.4"]);
  await node.pods.changes.changeInterface(id, add());
  t.deepEqual(names(node, id), ["eth0 0", "eth2 2", "eth1 1"]);
  await node.pods.close(0);
});

test("an add that fails on a guest that does not let go stays to be removed, and the slot is kept", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.keeps = true;
  node.failing.add("configure");
  await t.throwsAsync(node.pods.changes.changeInterface(id, add()), { code: "SYSCALL_FAILED" });
  t.deepEqual(names(node, id), ["eth0 0", "eth1 1 leaving"]);
  node.letGo("nic1");
  await until("eth1 to go", () => names(node, id).length === 1);
  t.deepEqual(names(node, id), ["eth0 0"]);
  t.deepEqual(held(node), ["10.0.0.2"]);
  await node.pods.close(0);
});
