import { readdirSync } from "node:fs";
import test from "ava";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { openTap } from "../../linux/tun.ts";
import { ownNetns } from "../lab/netns.ts";
import { never, nicPlan, plugTap, rig } from "./hypervisor-rig.ts";

test.before(async () => await ownNetns());

const taps = (): string[] =>
  readdirSync("/proc/self/net/dev_snmp6").filter((name) => name.startsWith("pntap"));

test.serial(
  "plugged and unplugged: the tap goes with the netdev, the slot is free again",
  async (t) => {
    await using it = await rig("polite");
    const { vm, events } = await it.start();
    for (let round = 0; round < 5; round++) {
      await plugTap(vm, nicPlan(1));
      t.deepEqual(await vm.nics(never), ["nic1"]);
      t.is(await vm.unplug(nicPlan(1), never), "unplugged");
      t.deepEqual(await vm.nics(never), []);
    }
    t.is(await vm.unplug(nicPlan(1), never), "unplugged", "absent means unplugged");
    t.deepEqual(events.seen, []);
    await vm.stop({ graceMs: 0 });
    t.deepEqual(taps(), []);
  },
);

test.serial("every slot at once, then all unplugged at once", async (t) => {
  await using it = await rig("polite");
  const { vm } = await it.start();
  const slots = Array.from({ length: it.driver.capabilities().nicSlots }, (_, n) => n + 1);
  await Promise.all(slots.map((slot) => plugTap(vm, nicPlan(slot))));
  t.is((await vm.nics(never)).length, 31);
  const outcomes = await Promise.all(slots.map((slot) => vm.unplug(nicPlan(slot), never)));
  t.true(outcomes.every((outcome) => outcome === "unplugged"));
  t.deepEqual(await vm.nics(never), []);
  await vm.stop({ graceMs: 0 });
});

test.serial("a guest that does not let go: traffic ends, the slot stays held", async (t) => {
  await using it = await rig("deaf", { unplugMs: 300 });
  const { vm, events } = await it.start();
  await plugTap(vm, nicPlan(3));
  t.deepEqual(taps(), ["pntap3"]);
  t.is(await vm.unplug(nicPlan(3), never), "pending");
  await gone("pntap3");
  t.deepEqual(await vm.nics(never), ["nic3"]);
  const error = await t.throwsAsync(plugTap(vm, nicPlan(3)));
  t.like(error, { code: "NIC_UNPLUG_PENDING", step: "nic.plug" });
  t.deepEqual(taps(), []);
  t.is(await vm.unplug(nicPlan(3), never), "pending", "asked again, within QEMU's second");
  await plugTap(vm, nicPlan(4));
  // A reset lets go of what was asked for.
  using observer = await QmpClient.open(vm.socketPath("verify"));
  await observer.execute("system_reset", {});
  t.deepEqual(await events.next("nic-removed"), {
    kind: "nic-removed",
    nicId: "nic3",
    expected: true,
  });
  await plugTap(vm, nicPlan(3));
  t.deepEqual([...(await vm.nics(never))].sort(), ["nic3", "nic4"]);
  await vm.stop({ graceMs: 0 });
  t.deepEqual(taps(), []);
});

/** Resolves when a tap is gone: the kernel ends it a little after QEMU has closed it. */
async function gone(tap: string): Promise<void> {
  while (taps().includes(tap)) await new Promise((resolve) => setTimeout(resolve, 5));
}

test.serial("a guest that ejects its NIC unasked is an event, and the slot is free", async (t) => {
  await using it = await rig("spitting");
  const { vm, events } = await it.start();
  await plugTap(vm, nicPlan(2));
  const removed = await events.next("nic-removed");
  t.like(removed, { nicId: "nic2", expected: false });
  t.deepEqual(await vm.nics(never), []);
  await gone("pntap2");
  events.seen.length = 0;
  await plugTap(vm, nicPlan(2));
  await events.next("nic-removed");
  t.is(await vm.unplug(nicPlan(2), never), "unplugged");
  await vm.stop({ graceMs: 0 });
});

test.serial("a failed plug leaves neither netdev nor descriptor nor slot", async (t) => {
  // A guest that is never idle now and then keeps QEMU 7.2 from answering a device_add that fails
  // (drain_call_rcu).
  await using it = await rig("deaf");
  const { vm } = await it.start();
  await plugTap(vm, nicPlan(1));
  // Asked once all plugs have failed, and closed in between: with two clients at work QEMU 7.2 now
  // and then leaves one without an answer.
  const ask = async (body: (observer: QmpClient) => Promise<unknown>): Promise<unknown> => {
    using observer = await QmpClient.open(vm.socketPath("verify"));
    return await body(observer);
  };

  const sameNetdev = { ...nicPlan(5), netdevId: "netdev1" };
  const first = await t.throwsAsync(plugTap(vm, sameNetdev));
  t.like(first, { code: "QMP_FAILED", step: "nic.plug", details: { command: "netdev_add" } });
  const taken = await t.throwsAsync(plugTap(vm, { ...nicPlan(6), nicId: "nic1" }));
  t.like(taken, { code: "WRONG_STATE", details: { holder: "nic1" } });

  const badMac = { ...nicPlan(7), mac: "not a mac" as never };
  const second = await t.throwsAsync(plugTap(vm, badMac));
  t.like(second, { code: "QMP_FAILED", details: { command: "device_add", nic: "nic7" } });
  await t.throwsAsync(
    ask((observer) => observer.execute("netdev_add", { type: "tap", id: "netdev1", fd: "none" })),
    { message: /Duplicate ID/ },
    "undoing must not take the other NIC's netdev along",
  );
  const absent = { message: /not found/ };
  await t.throwsAsync(
    ask((observer) => observer.execute("netdev_del", { id: "netdev7" })),
    absent,
  );
  await t.throwsAsync(
    ask((observer) => observer.execute("closefd", { fdname: "fd7" })),
    absent,
  );
  await gone("pntap7");
  await plugTap(vm, nicPlan(7));
  await vm.stop({ graceMs: 0 });
});

test.serial("what is no tap is refused and leaves nothing", async (t) => {
  await using it = await rig("deaf");
  const { vm } = await it.start();
  const error = await t.throwsAsync(vm.plug(nicPlan(1), [0], never));
  t.like(error, { code: "QMP_FAILED", details: { command: "netdev_add" } });
  t.like(await t.throwsAsync(vm.plug(nicPlan(32), [0], never)), { code: "NIC_SLOTS_FULL" });
  t.like(await t.throwsAsync(vm.plug(nicPlan(1), [999_999], never)), { code: "SYSCALL_FAILED" });
  await plugTap(vm, nicPlan(1));
  await vm.stop({ graceMs: 0 });
});

test.serial("a plug given up leaves nothing", async (t) => {
  await using it = await rig("polite");
  const { vm } = await it.start();
  const late = new AbortController();
  const plugging = plugTap(vm, nicPlan(1), late.signal);
  late.abort();
  t.like(await t.throwsAsync(plugging), { code: "CANCELLED", step: "nic.plug" });
  t.deepEqual(await vm.nics(never), []);
  await gone("pntap1");
  await plugTap(vm, nicPlan(1));
  await vm.stop({ graceMs: 0 });
});

test.serial("reattached: slots are known, NICs can be unplugged, new ones plugged", async (t) => {
  await using it = await rig("polite");
  const { vm: first } = await it.start();
  await plugTap(first, nicPlan(9));
  await first.detach();
  const vm = await it.driver.reattach(first.record, it.plan, never);
  if (vm === undefined) throw new Error("the VM was not found again");
  t.deepEqual(await vm.nics(never), ["nic9"]);
  t.deepEqual(taps(), ["pntap9"]);
  t.like(await t.throwsAsync(plugTap(vm, { ...nicPlan(8), slot: 9 })), {
    code: "WRONG_STATE",
  });
  await plugTap(vm, nicPlan(10));
  t.is(await vm.unplug(nicPlan(9), never), "unplugged");
  t.deepEqual(await vm.nics(never), ["nic10"]);
  await vm.stop({ graceMs: 0 });
});

test.serial("a descriptor left by a daemon that died in a plug is replaced", async (t) => {
  await using it = await rig("polite");
  const { vm: first } = await it.start();
  await first.detach();
  const nic = nicPlan(1);
  {
    using qmp = await QmpClient.open(first.socketPath("qmp"));
    await using tap = openTap(nic.tap);
    await qmp.passFd(nic.fdName, tap.fd);
  }
  t.deepEqual(taps(), ["pntap1"], "QEMU keeps the descriptor");
  const vm = await it.driver.reattach(first.record, it.plan, never);
  if (vm === undefined) throw new Error("the VM was not found again");
  t.is(await vm.unplug(nic, never), "unplugged");
  await gone("pntap1");
  await plugTap(vm, nic);
  await vm.stop({ graceMs: 0 });
});

test.serial(
  "when QEMU is killed its tap goes too, and an unplug under way fails as what it is",
  async (t) => {
    await using it = await rig("deaf");
    const { vm, events } = await it.start();
    await plugTap(vm, nicPlan(1));
    const unplugging = vm.unplug(nicPlan(1), never);
    process.kill(vm.record.pid, "SIGKILL");
    t.like(await t.throwsAsync(unplugging), { code: "QEMU_EXITED" });
    await events.next("exited");
    await gone("pntap1");
    await vm.stop({ graceMs: 0 });
    t.pass();
  },
);
