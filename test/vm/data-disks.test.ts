import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { DiskState, type Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";
import { whenReported } from "./standin-rig.ts";

/** No pod of the files that share the rig. */
const subject = "plugged";

let rig: Rig;
test.serial.before(async () => {
  rig = await joinRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

async function shell(t: ExecutionContext, script: string): Promise<string> {
  const { output, code } = await execIn(rig.client, subject, "sh", "-c", `exec 2>&1; ${script}`);
  t.is(code, 0, `${script}: ${output}`);
  return output.trimEnd();
}

const stateName = (state: DiskState): string =>
  Object.entries(DiskState).find(([, value]) => value === state)?.[0] ?? `${state}`;

/** Removes the pod of a test that fails. */
const removeLater = (t: ExecutionContext): void =>
  t.teardown(async () => {
    await rig.client.pods.delete({ idOrName: subject, force: true });
  });

/** The device of a disk in the guest, which notices it a moment after it was plugged in. */
const find = (name: string): string =>
  `for i in $(seq 100); do
     disk=$(grep -lx ${name} /sys/block/vd*/serial | cut -d/ -f4)
     [ -z "$disk" ] || break
     sleep 0.1
   done
   [ -n "$disk" ] || exit 9`;

const add = (disk: object) => rig.client.pods.addDisk({ idOrName: subject, disk });
const remove = (name: string) => rig.client.pods.removeDisk({ idOrName: subject, name });
const get = async (): Promise<Pod> => {
  const { pod } = await rig.client.pods.get({ idOrName: subject });
  if (pod === undefined) throw new Error("There is no pod");
  return pod;
};
const states = async (): Promise<readonly string[]> =>
  (await get()).disks.map(({ name, state }) => `${name} ${stateName(state)}`);
const made = (): string[] =>
  readdirSync(join(rig.daemon.stateDir, "disks"), { recursive: true }) as string[];

test.serial("disks come and go in a running guest, which writes to its own alone", async (t) => {
  removeLater(t);
  const before = await rig.inventory();
  await rig.client.pods.create({ spec: { name: subject } });
  const file = join(rig.directory, "given.raw");
  writeFileSync(file, Buffer.alloc(1 << 20, "of the host "), { mode: 0o600 });
  const { name } = await add({ sizeMib: 64 });
  t.is(name, "data");
  await add({ name: "given", file, readOnly: true });
  t.is((await add({ name: "also", file, readOnly: true })).name, "also");
  t.deepEqual(await states(), ["data PLUGGED", "given PLUGGED", "also PLUGGED"]);
  t.is(await shell(t, `${find("data")}; cat /sys/block/$disk/size`), "131072");
  await shell(t, `${find("data")}; echo written > /dev/$disk; sync`);
  t.is(await shell(t, `${find("given")}; head -c 11 /dev/$disk`), "of the host");
  t.regex(await shell(t, `${find("given")}; echo x > /dev/$disk || echo refused`), /refused$/);

  const taken = add({ name: "writer", file });
  t.like(await t.throwsAsync(taken), { code: "IMAGE_IN_USE", field: "disk.file" });
  for (const name of ["given", "also"]) await remove(name);
  t.true(existsSync(file));
  await add({ name: "given", file });
  await shell(t, `${find("given")}; echo of the pod | dd of=/dev/$disk conv=notrunc; sync`);
  await remove("given");
  t.is(readFileSync(file, "latin1").slice(0, 10), "of the pod");

  await rig.client.pods.stop({ idOrName: subject });
  t.deepEqual(await states(), ["data PLANNED"]);
  await rig.client.pods.start({ idOrName: subject });
  t.is(await shell(t, `${find("data")}; head -c 7 /dev/$disk`), "written");
  t.is(made().filter((path) => path.endsWith("data.raw")).length, 1);
  await remove("data");
  t.is(await shell(t, "ls /sys/block | grep -c vd || true"), "0");
  t.deepEqual(made(), []);

  await add({ name: "last", sizeMib: 1 });
  await rig.client.pods.delete({ idOrName: subject });
  t.deepEqual(made(), []);
  t.deepEqual(await rig.changes(before), []);
});

test.serial("a disk that another program took out is reported, also after a restart", async (t) => {
  removeLater(t);
  const before = await rig.inventory();
  const disks = ["one", "two"].map((name) => ({ name, sizeMib: 1 }));
  await rig.client.pods.create({ spec: { name: subject, disks } });
  t.deepEqual(await states(), ["one PLUGGED", "two PLUGGED"]);
  const socket = join(rig.directory, "run", "pods", (await get()).id, "witness.sock");
  const takeOut = async (name: string): Promise<void> => {
    using monitor = await QmpClient.open(socket);
    const left = Promise.withResolvers<void>();
    monitor.onEvent(({ name: kind, data }) => {
      if (kind === "DEVICE_DELETED" && data["device"] === `data-${name}`) left.resolve();
    });
    // A guest that is still busy with the disk's arrival may miss the request.
    for (let tries = 0; tries < 20; tries++) {
      await monitor.execute("device_del", { id: `data-${name}` }).catch((thrown: unknown) => {
        // It is asked already, or has left.
        if (!isPodnetError(thrown, "QMP_FAILED")) throw thrown;
      });
      if (await Promise.race([left.promise.then(() => true), delay(1000)])) return;
    }
    t.fail(`The guest does not let go of ${name}`);
  };
  await takeOut("one");
  await whenReported(rig.client, subject, /disk one is not in its machine.* DISK_NOT_FOUND/);
  t.deepEqual(await states(), ["one PLANNED", "two PLUGGED"]);
  t.regex((await get()).reason, /disk one is not in its machine/);
  await remove("one");
  t.is((await get()).reason, "");

  await rig.daemon.stop();
  await takeOut("two");
  await rig.restart("stop");
  await whenReported(rig.client, subject, /disk two is not in its machine/);
  t.deepEqual(await states(), ["two PLANNED"]);
  await rig.client.pods.stop({ idOrName: subject });
  await rig.client.pods.start({ idOrName: subject });
  t.deepEqual(await states(), ["two PLUGGED"]);
  await rig.client.pods.delete({ idOrName: subject });
  t.deepEqual(await rig.changes(before), []);
});

/** Waits until the pod has no disk any more. */
async function untilGone(t: ExecutionContext): Promise<void> {
  for (let waited = 0; waited < 200 && (await states()).length > 0; waited++) await delay(50);
  t.deepEqual(await states(), []);
}

// (What is left at the other moments test/vm/hypervisor-disks.test.ts makes by hand, and test/crash
// visits with a stand-in.)
for (const point of ["commit:learn:after#1", "qmp:device_add:after#1"])
  test.serial(`podnetd killed at ${point} of an add leaves nothing of the disk`, async (t) => {
    removeLater(t);
    const before = await rig.inventory();
    await rig.client.pods.create({ spec: { name: subject, boot: { factory: "cold" } } });
    await rig.restart("kill", { PODNET_FAILPOINTS: `${point}=kill` });
    await t.throwsAsync(add({ name: "cut", sizeMib: 1 }));
    await rig.restart("kill");
    await untilGone(t);
    t.deepEqual(made(), []);
    await add({ name: "cut", sizeMib: 1 });
    t.deepEqual(await states(), ["cut PLUGGED"]);
    await rig.restart("kill", { PODNET_FAILPOINTS: "qmp:device_del:after#1=kill" });
    await t.throwsAsync(remove("cut"));
    await rig.restart("kill");
    await untilGone(t);
    await rig.client.pods.delete({ idOrName: subject });
    t.deepEqual(made(), []);
    t.deepEqual(await rig.changes(before), []);
  });
