import {
  closeSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { firstDiskSlot, type HotDiskPlan, type RunningVm } from "../../hypervisor/driver.ts";
import { openHotDisk } from "../../hypervisor/disks/disks.ts";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { never, type Rig, rig } from "./hypervisor-rig.ts";

/** A sparse file, and the plan to plug it. */
function diskOf(it: Rig, name: string, slot = firstDiskSlot): HotDiskPlan {
  const path = join(it.directory, `${name}.raw`);
  const fd = openSync(path, "w");
  ftruncateSync(fd, 1 << 20);
  closeSync(fd);
  return { name, path, format: "raw", readOnly: false, slot };
}

async function plug(vm: RunningVm, disk: HotDiskPlan): Promise<void> {
  // (podnetd itself refuses what is no qcow2 image.)
  using file = openHotDisk({ ...disk, format: "raw" });
  await vm.plugDisk(disk, file.fd, never);
}

/** Sets, nodes and open files that QEMU has of plugged disks. */
async function kept(vm: RunningVm, it: Rig): Promise<readonly string[]> {
  using observer = await QmpClient.open(vm.socketPath("verify"));
  const ask = observer.execute.bind(observer) as (name: string, args: object) => Promise<unknown>;
  const sets = (await ask("query-fdsets", {})) as { fds: { opaque?: string }[] }[];
  const nodes = (await ask("query-named-block-nodes", {})) as { "node-name": string }[];
  const links = readdirSync(`/proc/${vm.record.pid}/fd`).map((fd) =>
    readlinkSync(`/proc/${vm.record.pid}/fd/${fd}`),
  );
  return [
    ...sets.flatMap(({ fds }) => fds.map(({ opaque = "" }) => `set of ${opaque}`)),
    ...nodes.map((node) => node["node-name"]).filter((name) => name.startsWith("data-")),
    ...links.filter((path) => path.startsWith(it.directory) && path.endsWith(".raw")),
  ];
}

const nothingLeft = async (t: ExecutionContext, vm: RunningVm, it: Rig): Promise<void> => {
  t.deepEqual(await vm.hotDisks(never), []);
  t.deepEqual(await kept(vm, it), []);
};

test("disks are plugged and unplugged many times, and QEMU keeps nothing of them", async (t) => {
  await using it = await rig("polite");
  const { vm, events } = await it.start();
  const disk = diskOf(it, "one");
  for (let round = 0; round < 5; round++) {
    await plug(vm, disk);
    t.deepEqual(await vm.hotDisks(never), ["one"]);
    t.deepEqual(await kept(vm, it), ["data-one", disk.path]);
    t.is(await vm.unplugDisk(disk.name, never), "unplugged");
    await nothingLeft(t, vm, it);
  }
  t.is(await vm.unplugDisk(disk.name, never), "unplugged", "absent means unplugged");
  const all = Array.from({ length: 7 }, (_, n) => firstDiskSlot + n).map((slot) =>
    diskOf(it, `disk-${slot}`, slot),
  );
  for (const each of all) await plug(vm, each);
  t.deepEqual(
    (await vm.hotDisks(never)).toSorted(),
    all.map(({ name }) => name),
  );
  for (const each of all) t.is(await vm.unplugDisk(each.name, never), "unplugged");
  await nothingLeft(t, vm, it);
  t.deepEqual(events.seen, []);
  await vm.stop({ graceMs: 0 });
});

test("a disk that QEMU refuses leaves nothing, and its name and slot can be used", async (t) => {
  await using it = await rig("polite");
  const { vm } = await it.start();
  const bad = { ...diskOf(it, "bad"), format: "qcow2" as const };
  writeFileSync(bad.path, "no qcow2".padEnd(512));
  t.like(await t.throwsAsync(plug(vm, bad)), { code: "QMP_FAILED", step: "disk.plug" });
  await nothingLeft(t, vm, it);
  const first = diskOf(it, "first");
  await plug(vm, first);
  // The slot is taken: QEMU has the node by then.
  const second = diskOf(it, "second");
  t.like(await t.throwsAsync(plug(vm, second)), { code: "QMP_FAILED", step: "disk.plug" });
  t.deepEqual(await kept(vm, it), ["data-first", first.path]);
  t.like(await t.throwsAsync(plug(vm, first)), { code: "WRONG_STATE" });
  const signal = AbortSignal.abort();
  using file = openHotDisk(second);
  const late = t.throwsAsync(vm.plugDisk({ ...second, slot: firstDiskSlot + 1 }, file.fd, signal));
  t.like(await late, { code: "CANCELLED" });
  await plug(vm, { ...second, slot: firstDiskSlot + 1 });
  await vm.unplugDisk(first.name, never);
  await vm.unplugDisk(second.name, never);
  await nothingLeft(t, vm, it);
  await vm.stop({ graceMs: 0 });
});

test("what a podnetd that ended left of a disk is taken out by its id", async (t) => {
  await using it = await rig("polite");
  const { vm } = await it.start();
  const disk = diskOf(it, "left");
  using observer = await QmpClient.open(vm.socketPath("verify"));
  using file = openHotDisk(disk);
  await observer.addFd("data-left", file.fd);
  t.is(await vm.unplugDisk(disk.name, never), "unplugged", "a descriptor without a node");
  const set = await observer.addFd("data-left", file.fd);
  const inSet = { driver: "file", filename: `/dev/fdset/${set}`, "read-only": false } as const;
  const node = {
    driver: "raw",
    "node-name": "data-left",
    "read-only": false,
    file: inSet,
  } as const;
  await observer.execute("blockdev-add", node);
  observer.close();
  t.is(await vm.unplugDisk(disk.name, never), "unplugged", "a node without a device");
  await nothingLeft(t, vm, it);
  await plug(vm, disk);
  await vm.detach();
  const again = await it.driver.reattach(vm.record, it.plan, never);
  if (again === undefined) throw new Error("The machine has ended");
  t.deepEqual(await again.hotDisks(never), [disk.name]);
  t.is(await again.unplugDisk(disk.name, never), "unplugged", "a disk of the one before");
  await nothingLeft(t, again, it);
  await again.stop({ graceMs: 0 });
});

test("a disk that another program takes out is reported, and its file is let go of", async (t) => {
  await using it = await rig("polite");
  const { vm, events } = await it.start();
  const disk = diskOf(it, "taken");
  await plug(vm, disk);
  {
    using observer = await QmpClient.open(vm.socketPath("verify"));
    await observer.execute("device_del", { id: "data-taken" });
    t.deepEqual(await events.next("disk-removed"), {
      kind: "disk-removed",
      disk: disk.name,
      expected: false,
    });
  }
  await nothingLeft(t, vm, it);
  await plug(vm, disk);
  await vm.stop({ graceMs: 0 });
});

test("a guest that keeps a disk has it until it lets go, which is reported", async (t) => {
  await using it = await rig("deaf", { unplugMs: 300 });
  const { vm, events } = await it.start();
  const disk = diskOf(it, "kept");
  await plug(vm, disk);
  t.is(await vm.unplugDisk(disk.name, never), "pending");
  t.is(await vm.unplugDisk(disk.name, never), "pending", "asked again");
  t.deepEqual(await kept(vm, it), ["data-kept", disk.path]);
  t.like(await t.throwsAsync(plug(vm, disk)), { code: "WRONG_STATE" });
  {
    // A reset lets go of what was asked for.
    using observer = await QmpClient.open(vm.socketPath("verify"));
    await observer.execute("system_reset", {});
  }
  t.like(await events.next("disk-removed"), { disk: disk.name, expected: true });
  await nothingLeft(t, vm, it);
  await vm.stop({ graceMs: 0 });
});
