import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { maxInterfaces } from "../../../../api/validate/interfaces.ts";
import { maxDataDisks } from "../../../../api/validate/data-disks.ts";
import type { DataDiskSpec } from "../../../../api/pod-spec.ts";
import { nicSlots } from "../../../../hypervisor/argv/machine-kinds.ts";
import { emptyQcow2 } from "../../../../hypervisor/disks/qcow2-copy.ts";
import { firstDiskSlot } from "../../../../hypervisor/driver.ts";
import { configuration, openNode } from "../fixtures/node.ts";
import { until } from "../../../lab/until.ts";

type Node = ReturnType<typeof openNode>;

const sized = (name: string, sizeMib = 1): DataDiskSpec => ({ name, sizeMib, readOnly: false });
const given = (path: string, readOnly = false): DataDiskSpec => ({
  file: { path, format: "raw" },
  readOnly,
});

const disksOf = (node: Node, id: string): string[] =>
  (node.pods.find(id).plan.disks ?? []).map(
    ({ name, slot, change = "there" }) => `${name} ${slot} ${change}`,
  );
const fileOf = (node: Node, id: string, name: string): string =>
  join(node.config.disksDir, id, `data-${name}.raw`);
const stopped = async (node: Node, id: string): Promise<void> => {
  await node.pods.stop(id, { force: true });
};
const onlyUser =
  "A pod that writes to a file is its only user: plug it in read-only, or take a copy";
const silent = {
  signal: new AbortController().signal,
  progress: { started: () => {}, finished: () => {} },
};

async function refusal(t: ExecutionContext, asked: Promise<unknown>, like: object): Promise<void> {
  const error = await t.throwsAsync(asked);
  t.like(error, like, error?.message);
}

test("a disk is added after its row and removed after its row, with the file that podnetd made", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.calls.length = 0;
  const seen: unknown[] = [];
  node.onCall = (call) =>
    seen.push([call, ...disksOf(node, id), existsSync(fileOf(node, id, "data"))]);
  const { name } = await node.pods.changes.addDisk(id, { sizeMib: 2, readOnly: false }, false);
  t.is(name, "data");
  t.is(statSync(fileOf(node, id, "data")).size, 2 << 20);
  t.deepEqual(disksOf(node, id), ["data 25 there"]);
  await node.pods.changes.removeDisk(id, "data");
  t.deepEqual(seen, [
    ["plug data", "data 25 adding", true],
    ["unplug data", "data 25 removing", true],
  ]);
  t.deepEqual(disksOf(node, id), []);
  t.false(existsSync(join(node.config.disksDir, id)));
  await node.pods.close(0);
});

test("disks have slots that no NIC can have, and no more disks than these slots", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  t.true(maxInterfaces < firstDiskSlot);
  t.is(firstDiskSlot + maxDataDisks - 1, nicSlots);
  for (let n = 1; n <= 7; n++)
    await node.pods.changes.addDisk(id, { sizeMib: 1, readOnly: false }, false);
  t.deepEqual(disksOf(node, id).slice(0, 2), ["data 25 there", "data-2 26 there"]);
  await refusal(t, node.pods.changes.addDisk(id, sized("more"), false), {
    code: "INVALID_ARGUMENT",
    message: "The pod has 7 plugged disks",
  });
  await node.pods.changes.removeDisk(id, "data-2");
  await node.pods.changes.addDisk(id, sized("more"), false);
  t.true(disksOf(node, id).includes("more 26 there"));
  await node.pods.close(0);
});

test("an add whose plug fails leaves neither row nor file", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.failing.add("plug");
  await refusal(t, node.pods.changes.addDisk(id, sized("one"), false), { code: "SYSCALL_FAILED" });
  t.deepEqual(disksOf(node, id), []);
  t.false(existsSync(fileOf(node, id, "one")));
  node.failing.clear();
  await node.pods.changes.addDisk(id, sized("one"), false);
  await node.pods.close(0);
});

test("a removal that fails is tried again until it works", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.changes.addDisk(id, sized("one"), false);
  node.failing.add("unplug");
  await refusal(t, node.pods.changes.removeDisk(id, "one"), {
    code: "SYSCALL_FAILED",
    hint: "podnetd goes on trying: see podnet disk list",
  });
  t.deepEqual(disksOf(node, id), ["one 25 removing"]);
  t.regex(node.pods.find(id).reason ?? "", /^disk one is not removed yet/);
  node.failing.clear();
  await until("no disk", () => disksOf(node, id).length === 0);
  t.deepEqual(disksOf(node, id), []);
  t.false(existsSync(fileOf(node, id, "one")));
  await node.pods.close(0);
});

test("a guest that keeps a disk has it, with its file, until it lets go or its machine ends", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  for (const name of ["one", "two"]) await node.pods.changes.addDisk(id, sized(name), false);
  node.keeps = true;
  for (const name of ["one", "two"]) await node.pods.changes.removeDisk(id, name);
  t.deepEqual(disksOf(node, id), ["one 25 removing", "two 26 removing"]);
  t.true(existsSync(fileOf(node, id, "one")));
  await refusal(t, node.pods.changes.addDisk(id, sized("one"), false), { code: "NAME_IN_USE" });
  node.keeps = false;
  node.letGoOfDisk("one");
  await until("one disk", () => disksOf(node, id).length === 1);
  t.deepEqual(disksOf(node, id), ["two 26 removing"]);
  t.false(existsSync(fileOf(node, id, "one")));
  await stopped(node, id);
  t.deepEqual(disksOf(node, id), []);
  t.false(existsSync(fileOf(node, id, "two")));
  await node.pods.close(0);
});

test("a disk that leaves unasked makes the pod degraded, until the disk is removed", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.changes.addDisk(id, sized("one"), false);
  node.letGoOfDisk("one", false);
  await until("a reason", () => node.pods.find(id).reason !== undefined);
  t.regex(node.pods.find(id).reason ?? "", /^disk one is not in its machine/);
  t.deepEqual(disksOf(node, id), ["one 25 there"]);
  await node.pods.changes.removeDisk(id, "one");
  t.is(node.pods.find(id).reason, undefined);
  await node.pods.close(0);
});

test("a start plugs the disks again; one whose file is gone can be removed first", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  const path = join(node.config.stateDir, "given.raw");
  writeFileSync(path, Buffer.alloc(1 << 20));
  await node.pods.changes.addDisk(id, sized("one"), false);
  await node.pods.changes.addDisk(id, { ...given(path), name: "two" }, false);
  writeFileSync(fileOf(node, id, "one"), "written", { flag: "r+" });
  await stopped(node, id);
  node.calls.length = 0;
  await node.pods.start(id, silent);
  t.deepEqual(
    node.calls.filter((call) => /^plug (?!nic)/.test(call)),
    ["plug one", "plug two"],
  );
  t.is(readFileSync(fileOf(node, id, "one"), "latin1").slice(0, 7), "written");
  await stopped(node, id);
  unlinkSync(path);
  await refusal(t, node.pods.start(id, silent), { code: "IMAGE_MISSING", step: "disk.plug" });
  await refusal(t, node.pods.changes.removeDisk(id, "three"), {
    code: "DISK_NOT_FOUND",
    hint: "Its plugged disks are one, two",
  });
  await node.pods.changes.removeDisk(id, "two");
  await node.pods.start(id, silent);
  await node.pods.delete(id, { force: false });
  t.false(existsSync(fileOf(node, id, "one")));
  await node.pods.close(0);
});

test("a file has one pod that writes to it, and any number that read it", async (t) => {
  using node = openNode(configuration({}));
  const one = await node.create({ spec: { name: "one" } });
  const two = await node.create({ spec: { name: "two" } });
  const path = join(node.config.stateDir, "given.raw");
  writeFileSync(path, Buffer.alloc(1 << 20));
  const link = join(node.config.stateDir, "link.raw");
  symlinkSync(path, link);
  const { changes } = node.pods;
  for (const { id } of [one, two]) await changes.addDisk(id, given(path, true), false);
  await refusal(t, changes.addDisk(two.id, given(link), false), { code: "IMAGE_IN_USE" });
  for (const { id } of [one, two]) await changes.removeDisk(id, "data");
  await changes.addDisk(one.id, given(link), false);
  for (const readOnly of [true, false])
    await refusal(t, changes.addDisk(two.id, given(path, readOnly), false), {
      code: "IMAGE_IN_USE",
      field: "disk.file",
      ...(readOnly ? {} : { hint: onlyUser }),
      details: { path, holder: "one" },
    });
  // Nor may a pod have it twice, or write to what podnetd made for another.
  await refusal(t, changes.addDisk(one.id, given(path), false), { code: "IMAGE_IN_USE" });
  await changes.addDisk(one.id, sized("own"), false);
  const own = fileOf(node, one.id, "own");
  await refusal(t, changes.addDisk(two.id, given(own, true), false), { code: "IMAGE_IN_USE" });
  await node.pods.close(0);
});

test("callers below admin give files of the configured directories alone, whatever leads there", async (t) => {
  const config = configuration({});
  const [images, written, elsewhere] = ["images", "written", "elsewhere"].map((name) =>
    join(dirname(config.stateDir), name),
  ) as [string, string, string];
  using node = openNode({ ...config, imagePaths: [images], writeThroughPaths: [written] });
  for (const each of [images, written, elsewhere]) {
    mkdirSync(each, { recursive: true });
    writeFileSync(join(each, "a.raw"), Buffer.alloc(1 << 20));
  }
  symlinkSync(join(elsewhere, "a.raw"), join(written, "out.raw"));
  symlinkSync(elsewhere, join(images, "out"));
  const { id } = await node.create();
  const { changes } = node.pods;
  const denied = { code: "PERMISSION_DENIED", field: "disk.file" };
  for (const path of [
    join(elsewhere, "a.raw"),
    join(images, "a.raw"),
    join(written, "out.raw"),
    join(written, "../elsewhere/a.raw"),
    join(elsewhere, "absent"),
  ])
    await refusal(t, changes.addDisk(id, given(path), true), denied);
  for (const path of [join(elsewhere, "a.raw"), join(images, "out/a.raw"), "/etc/shadow"])
    await refusal(t, changes.addDisk(id, given(path, true), true), denied);
  await changes.addDisk(id, given(join(written, "a.raw")), true);
  await changes.addDisk(id, given(join(images, "a.raw"), true), true);
  await changes.addDisk(id, { ...given(join(elsewhere, "a.raw")), name: "by-admin" }, false);
  // What an operator gave is looked at again when the pod starts.
  await stopped(node, id);
  unlinkSync(join(written, "a.raw"));
  renameSync(join(written, "out.raw"), join(written, "a.raw"));
  await refusal(t, node.pods.start(id, silent), {
    ...denied,
    field: "disks[data].file",
    step: "disk.plug",
  });
  await node.pods.close(0);
});

test("a file that took the place of a disk is looked at again when the pod starts", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  const path = join(node.config.stateDir, "given.qcow2");
  const { pieces, length } = emptyQcow2(1 << 20);
  const whole = Buffer.alloc(length);
  for (const { at, data } of pieces) data.copy(whole, at);
  writeFileSync(path, whole);
  const file = { path, format: "qcow2" } as const;
  await node.pods.changes.addDisk(id, { name: "set", file, readOnly: false }, false);
  await stopped(node, id);
  const named = Buffer.from(whole);
  named.writeBigUInt64BE(4n, 72);
  const places: readonly (readonly [RegExp, () => void])[] = [
    [/no regular file/, () => execFileSync("mkfifo", [path])],
    [/no regular file/, () => mkdirSync(path)],
    [/no regular file/, () => symlinkSync("/dev/tty", path)],
    [/not a qcow2 image/, () => writeFileSync(path, Buffer.alloc(1 << 20))],
    [/cut short/, () => writeFileSync(path, whole.subarray(0, 4096))],
    [/its data in another file/, () => writeFileSync(path, named)],
  ];
  for (const [why, put] of places) {
    rmSync(path, { recursive: true });
    put();
    const error = await t.throwsAsync(node.pods.start(id, silent), { message: why });
    t.like(error, { code: "IMAGE_UNREADABLE", field: "disks[set].file", step: "disk.plug" });
  }
  rmSync(path);
  writeFileSync(path, whole);
  await node.pods.start(id, silent);
  await node.pods.close(0);
});

test("a file below /dev is given to QEMU as a file", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  const directory = mkdtempSync("/dev/shm/podnet-");
  t.teardown(() => rmSync(directory, { recursive: true }));
  const path = join(directory, "given.raw");
  writeFileSync(path, Buffer.alloc(1 << 20));
  await node.pods.changes.addDisk(id, given(path), false);
  t.is(node.pods.find(id).plan.disks?.[0]?.isDevice, false);
  await node.pods.close(0);
});

test("a size beyond what is allowed or free is refused", async (t) => {
  using node = openNode({ ...configuration({}), diskMaxMib: 8 });
  const { id } = await node.create();
  const { changes } = node.pods;
  await refusal(t, changes.addDisk(id, sized("one", 9), false), {
    code: "INVALID_ARGUMENT",
    field: "disk.size_mib",
    hint: "Ask for 8 MiB at most, or have disk_max_mib set to more",
  });
  await changes.addDisk(id, sized("one", 8), false);
  await node.pods.close(0);
  using other = openNode(configuration({}));
  mkdirSync(other.config.disksDir);
  const pod = await other.create();
  await refusal(t, other.pods.changes.addDisk(pod.id, sized("one", 2 ** 30), false), {
    code: "INVALID_ARGUMENT",
    field: "disk.size_mib",
    hint: "Ask for less, or make room in disks_dir",
  });
  t.deepEqual(disksOf(other, pod.id), []);
  await other.pods.close(0);
});

test("a paused pod's disks stay as they are", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.changes.addDisk(id, sized("one"), false);
  await node.pods.pause(id);
  await refusal(t, node.pods.changes.addDisk(id, sized("two"), false), { code: "WRONG_STATE" });
  await refusal(t, node.pods.changes.removeDisk(id, "one"), { code: "WRONG_STATE" });
  t.deepEqual(disksOf(node, id), ["one 25 there"]);
  await node.pods.close(0);
});

test("disks of a spec are made, plugged in and shown, and go with the pod", async (t) => {
  using node = openNode(configuration({}));
  const path = join(node.config.stateDir, "given.raw");
  writeFileSync(path, Buffer.alloc(1 << 20));
  const disks = [{ sizeMib: 1 }, { name: "set", file: path, readOnly: true }, { sizeMib: 2 }];
  const { id } = await node.create({ spec: { disks } });
  t.deepEqual(disksOf(node, id), ["data 25 there", "set 26 there", "data-2 27 there"]);
  t.deepEqual(
    node.calls.filter((call) => /^plug (?!nic)/.test(call)),
    ["plug data", "plug set", "plug data-2"],
  );
  writeFileSync(fileOf(node, id, "data"), "written", { flag: "r+" });
  await node.pods.changes.removeDisk(id, "data-2");
  await stopped(node, id);
  await node.pods.start(id, silent);
  t.is(readFileSync(fileOf(node, id, "data"), "latin1").slice(0, 7), "written");
  t.deepEqual(disksOf(node, id), ["data 25 there", "set 26 there"]);
  await node.pods.delete(id, { force: false });
  t.false(existsSync(fileOf(node, id, "data")));
  t.true(existsSync(path));
  await node.pods.close(0);
});

test("a create whose disk cannot be plugged leaves none of its files", async (t) => {
  using node = openNode(configuration({}));
  node.failing.add("plug bad");
  const disks = [{ sizeMib: 1 }, { name: "bad", sizeMib: 1 }];
  await refusal(t, node.create({ spec: { disks } }), { step: "disk.plug" });
  t.deepEqual(node.pods.list(), []);
  t.deepEqual(readdirSync(node.config.disksDir), []);
  await node.pods.close(0);
});

test("disks of a spec that cannot be are refused, with their field, before anything is made", async (t) => {
  using node = openNode(configuration({}));
  const path = join(node.config.stateDir, "given.raw");
  writeFileSync(path, Buffer.alloc(1 << 20));
  const disk = { file: path };
  const refused = (spec: object, like: object): Promise<void> =>
    refusal(
      t,
      Promise.resolve().then(() => node.create({ spec })),
      like,
    );
  await refused({ disks: [disk, disk] }, { code: "INVALID_ARGUMENT", field: "disks[1].file" });
  await refused(
    { boot: { disks: [{ path }] }, disks: [{ ...disk, name: "same" }] },
    { code: "INVALID_ARGUMENT", field: "disks[0].file" },
  );
  await refused(
    {
      disks: [
        { name: "a", sizeMib: 1 },
        { name: "a", sizeMib: 1 },
      ],
    },
    { code: "NAME_IN_USE", field: "disks[1].name" },
  );
  await refused(
    { disks: Array.from({ length: 8 }, () => ({ sizeMib: 1 })) },
    { code: "INVALID_ARGUMENT", field: "disks" },
  );
  await refused(
    { disks: [{ sizeMib: 1 }, { file: "/no/such" }] },
    { code: "IMAGE_MISSING", field: "disks[1].file" },
  );
  t.deepEqual(node.calls, []);
  t.false(existsSync(node.config.disksDir));
  await node.pods.close(0);
});
