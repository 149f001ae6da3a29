import {
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { qcow2Of } from "../fixtures/disk-image.ts";
import { writeTinyGuest } from "../peers/tiny-guest.ts";
import { type Rig, reached } from "./daemon-rig.ts";
import { joinStandInRig } from "./standin-rig.ts";

let rig: Rig;
let raw: string;
let qcow2: string;

test.serial.before(async () => {
  rig = await joinStandInRig();
  raw = join(rig.directory, "a.raw");
  qcow2 = join(rig.directory, "b.qcow2");
  const content = Buffer.alloc(1 << 20, "0123456789abcdef");
  // podnetd alone can open them.
  writeFileSync(raw, content, { mode: 0o600 });
  writeFileSync(qcow2, qcow2Of(content, 1 << 26), { mode: 0o600 });
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const create = (name: string, disks: readonly object[]) =>
  rig.client.pods.create({ spec: { name, boot: { disks: [...disks] } } });
const remove = (name: string) => rig.client.pods.delete({ idOrName: name });
const overlays = (): string[] => readdirSync(join(rig.daemon.stateDir, "disks"));

test.serial("a create that fails leaves nothing of its disks", async (t) => {
  const before = await rig.inventory();
  const spec = {
    name: "silent",
    boot: { cmdline: "standin.agent=silent", disks: [{ path: raw }] },
  };
  const creating = t.throwsAsync(rig.client.pods.create({ spec, timeoutMs: 3000 }));
  await reached(rig.client, "vm.start");
  t.is(overlays().length, 1);
  const error = await creating;
  t.like(error, { code: "DEADLINE_EXCEEDED" });
  t.deepEqual(await rig.changes(before), []);
  t.deepEqual(overlays(), []);
});

test.serial("an image that is written through is one pod's alone", async (t) => {
  const through = { path: qcow2, format: "qcow2", writeThrough: true };
  const inUse = { code: "IMAGE_IN_USE", field: "boot.disks[0].path" };
  await create("reader", [{ path: qcow2, format: "qcow2" }]);
  const refused = await t.throwsAsync(create("writer", [through]));
  t.like(refused, { ...inUse, details: { holder: "reader" } });
  await remove("reader");

  await create("writer", [through]);
  const before = await rig.inventory();
  for (const disk of [
    through,
    { ...through, writeThrough: false },
    { ...through, writeThrough: false, readOnly: true },
  ]) {
    const spec = { name: "next", boot: { disks: [disk] } };
    for (const planOnly of [true, false])
      t.like(await t.throwsAsync(rig.client.pods.create({ spec, planOnly })), {
        ...inUse,
        details: { holder: "writer" },
      });
  }
  // Also while it does not run: it is to find again what it wrote.
  await rig.client.pods.stop({ idOrName: "writer" });
  t.like(await t.throwsAsync(create("next", [through])), inUse);
  t.deepEqual(
    await rig.changes(before).then((all) => all.filter((line) => line.startsWith("+"))),
    [],
  );
  await remove("writer");
  await create("next", [{ path: qcow2, format: "qcow2" }]);
  await remove("next");
});

test.serial("a pod does not write to what another pod or the node boots from", async (t) => {
  const image = (name: string): string => join(rig.directory, name);
  const { kernel, initrd } = await writeTinyGuest(rig.directory, "deaf");
  writeFileSync(initrd, Buffer.alloc(1024, "initramfs"));
  linkSync(initrd, image("linked"));
  symlinkSync(kernel, image("symlinked"));
  await rig.client.pods.create({ spec: { name: "booted", boot: { kernel, initrd } } });
  const refused = { code: "IMAGE_IN_USE", field: "boot.disks[0].path" };
  const writing = (path: string) => create("writer", [{ path, writeThrough: true }]);
  for (const name of ["linked", "symlinked"])
    t.like(await t.throwsAsync(writing(image(name))), {
      ...refused,
      details: { holder: "booted" },
    });
  await remove("booted");
  // Nor the other way round: an initramfs that a pod writes to boots no other pod.
  await create("writer", [{ path: image("linked"), writeThrough: true }]);
  t.like(
    await t.throwsAsync(
      rig.client.pods.create({ spec: { name: "booted", boot: { kernel, initrd } } }),
    ),
    { code: "IMAGE_IN_USE", field: "boot.initrd", details: { holder: "writer" } },
  );
  await remove("writer");
  const { plan } = await rig.client.pods.create({ spec: {}, planOnly: true });
  const steps = plan?.sections.flatMap(({ lines }) => lines).join("\n") ?? "";
  const [, nodeKernel = ""] = /-kernel (\S+)/.exec(steps) ?? [];
  const error = await t.throwsAsync(writing(nodeKernel));
  t.like(error, { ...refused, details: { path: nodeKernel } });
  t.regex(error?.message ?? "", /the node, as its default image/);
  // What another pod wrote is that pod's, though it does not run.
  await create("writer", [{ path: raw }]);
  await rig.client.pods.stop({ idOrName: "writer" });
  const [own = ""] = overlays();
  const overlay = join(rig.daemon.stateDir, "disks", own, "0.qcow2");
  t.like(
    await t.throwsAsync(create("next", [{ path: overlay, format: "qcow2", readOnly: true }])),
    {
      ...refused,
      details: { holder: "writer" },
    },
  );
  await remove("writer");
});

test.serial(
  "a pod does not start over another image than before, nor without what it wrote",
  async (t) => {
    await create("kept", [{ path: raw }]);
    await rig.client.pods.stop({ idOrName: "kept" });
    renameSync(raw, `${raw}-before`);
    writeFileSync(raw, Buffer.alloc(1 << 20));
    const changed = await t.throwsAsync(rig.client.pods.start({ idOrName: "kept" }));
    t.like(changed, { code: "IMAGE_UNREADABLE", field: "boot.disks[0].path" });
    t.regex(changed.message, /changed since/);
    renameSync(`${raw}-before`, raw);
    const [id] = overlays();
    const directory = join(rig.daemon.stateDir, "disks", id ?? "");
    renameSync(directory, `${directory}-away`);
    t.like(await t.throwsAsync(rig.client.pods.start({ idOrName: "kept" })), {
      code: "IMAGE_MISSING",
    });
    t.false(existsSync(directory));
    renameSync(`${directory}-away`, directory);
    const { pod } = await rig.client.pods.start({ idOrName: "kept" });
    t.is(pod?.state, PodState.RUNNING);
    await remove("kept");
  },
);

test.serial("wrong images are reported before anything is made", async (t) => {
  const at = (name: string, content: Buffer): string => {
    const path = join(rig.directory, name);
    writeFileSync(path, content);
    return path;
  };
  const image = readFileSync(qcow2);
  const backed = Buffer.from(image);
  backed.writeBigUInt64BE(512n, 8);
  const cases = [
    [{ path: join(rig.directory, "nowhere") }, "IMAGE_MISSING", /There is no disk/],
    [{ path: at("empty", Buffer.alloc(0)) }, "IMAGE_UNREADABLE", /empty/],
    [{ path: at("odd", Buffer.alloc(700)) }, "IMAGE_UNREADABLE", /whole sectors/],
    [{ path: raw, format: "qcow2" }, "IMAGE_UNREADABLE", /not a qcow2/],
    [
      { path: at("cut", image.subarray(0, image.length - 65_536)), format: "qcow2" },
      "IMAGE_UNREADABLE",
      /cut short/,
    ],
    [{ path: at("backed", backed), format: "qcow2" }, "IMAGE_UNREADABLE", /backing file/],
    [{ path: rig.directory }, "IMAGE_UNREADABLE", /no regular file/],
  ] as const;
  const before = await rig.inventory();
  for (const [disk, code, message] of cases)
    for (const planOnly of [true, false]) {
      const spec = { name: "wrong", boot: { disks: [disk] } };
      const error = await t.throwsAsync(rig.client.pods.create({ spec, planOnly }));
      // Without a step: nothing had begun.
      t.like(error, { code, field: "boot.disks[0].path", step: undefined });
      t.regex(error.message, message);
    }
  t.deepEqual(await rig.changes(before), []);
  // That image, whole, boots.
  const whole = at("whole", image);
  await create("whole", [{ path: whole, format: "qcow2" }]);
  await remove("whole");
  rmSync(whole);
});

test.serial("the plan shows disks and what is made for them", async (t) => {
  const plan = await rig.daemon.podnet(
    "create",
    "--plan",
    "--disk",
    raw,
    "--disk",
    `${qcow2},format=qcow2,ro`,
  );
  t.regex(plan, /raw \S+\/a\.raw below \S+\/state\/disks\/[a-z2-7]{12}\/0\.qcow2\n/);
  t.regex(plan, /qcow2 \S+\/b\.qcow2, read only\n/);
  t.notRegex(plan, /1\.qcow2/);
});

test.serial("what a pod wrote whose record is lost stays until podnet goes down", async (t) => {
  const directory = join(rig.daemon.stateDir, "disks", "aaaaaaaaaaaa");
  mkdirSync(directory);
  writeFileSync(join(directory, "0.qcow2"), "written");
  await create("known", [{ path: raw }]);
  await rig.restart("kill");
  t.is(overlays().length, 2);
  const { removed } = await rig.client.node.down({ planOnly: true });
  t.deepEqual(
    removed.filter((line) => line.includes("no record")),
    ["what pod aaaaaaaaaaaa wrote, of which there is no record"],
  );
  await rig.client.node.down({});
  t.deepEqual(overlays(), []);
});
