import test from "ava";
import { leastMemoryMib } from "../../hypervisor/argv/preflight.ts";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { ownNetns } from "../lab/netns.ts";
import { debianGuest, never, nicPlan, plugTap, rig, type Vm } from "./hypervisor-rig.ts";

test.before(async () => await ownNetns());

/** Resolves when the agent has opened its control channel: the kernel is up. */
async function booted({ events }: Vm): Promise<void> {
  while ((await events.next("channel")).port !== 0) events.seen.shift();
}

test.serial(
  "the guest's agent opens its channel, and the console shows no kernel trouble",
  async (t) => {
    await using it = await rig(debianGuest);
    const running = await it.start();
    await booted(running);
    t.deepEqual(
      running.events.seen.filter((event) => event.kind !== "channel"),
      [],
    );
    t.false(Buffer.from(running.vm.consoleTail()).includes("Kernel panic"));
    await running.vm.stop({ graceMs: 0 });
  },
);

test.serial("24 NICs at once, plugged and unplugged", async (t) => {
  await using it = await rig(debianGuest);
  const running = await it.start();
  await booted(running);
  const { vm } = running;
  const slots = Array.from({ length: 24 }, (_, n) => n + 1);
  await Promise.all(slots.map((slot) => plugTap(vm, nicPlan(slot))));
  t.is((await vm.nics(never)).length, 24);
  const outcomes = await Promise.all(slots.map((slot) => vm.unplug(nicPlan(slot), never)));
  t.deepEqual(new Set(outcomes), new Set(["unplugged"]));
  t.deepEqual(await vm.nics(never), []);
  await vm.stop({ graceMs: 0 });
});

test.serial("unplug while the guest is paused stays pending until it runs again", async (t) => {
  await using it = await rig(debianGuest);
  const running = await it.start();
  await booted(running);
  const { vm, events } = running;
  await plugTap(vm, nicPlan(1));
  await vm.pause(never);
  t.is(await vm.unplug(nicPlan(1), never), "pending");
  t.like(await t.throwsAsync(plugTap(vm, nicPlan(1))), { code: "NIC_UNPLUG_PENDING" });
  await vm.resume(never);
  t.like(await events.next("nic-removed"), { nicId: "nic1", expected: true });
  await plugTap(vm, nicPlan(1));
  t.is(await vm.unplug(nicPlan(1), never), "unplugged");
  await vm.stop({ graceMs: 0 });
});

test.serial("plugged before the guest is up, and kept over its reboot", async (t) => {
  await using it = await rig(debianGuest);
  const running = await it.start();
  const { vm, events } = running;
  await plugTap(vm, nicPlan(1));
  await booted(running);
  using observer = await QmpClient.open(vm.socketPath("verify"));
  events.seen.length = 0;
  await observer.execute("system_reset", {});
  while (!(await events.next("channel")).open) events.seen.shift();
  t.deepEqual(await vm.nics(never), ["nic1"]);
  t.is(await vm.unplug(nicPlan(1), never), "unplugged");
  await vm.stop({ graceMs: 0 });
});

test.serial("the least memory the driver allows boots", async (t) => {
  await using it = await rig(debianGuest);
  const vm = await it.driver.start({ ...it.plan, memoryMib: leastMemoryMib }, never);
  const { promise: open, resolve, reject } = Promise.withResolvers<void>();
  vm.onEvent((event) => {
    if (event.kind === "channel" && event.open) resolve();
    if (event.kind === "guest-reset" || event.kind === "exited")
      reject(new Error(Buffer.from(vm.consoleTail()).toString()));
  });
  await t.notThrowsAsync(open);
  await vm.stop({ graceMs: 0 });
});
