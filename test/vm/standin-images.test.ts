import { execFile } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { openDisks } from "../../hypervisor/disks/disks.ts";
import type { Rig } from "./daemon-rig.ts";
import { openStandInRig, whenReported } from "./standin-rig.ts";

// What files a caller who is no administrator can have podnetd open. /etc/shadow stands for all
// that are not theirs.

const run = promisify(execFile);
const operator = ["--reuid=4001", "--regid=4001", "--clear-groups"] as const;
const secret = "/etc/shadow";

let rig: Rig;
let images: string;
let writable: string;

test.serial.before(async () => {
  images = join("/tmp", `podnet-allowed-${process.pid}`);
  writable = `${images}-writable`;
  mkdirSync(images, { mode: 0o755 });
  mkdirSync(writable, { mode: 0o755 });
  disk("own.img");
  rig = await openStandInRig(
    `quarantine_s = 0\n[access]\noperator = ["uid:4001"]\nimage_paths = ["${images}"]\nwrite_through_paths = ["${writable}"]\n`,
  );
  chmodSync(rig.directory, 0o755);
  openToAll();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const openToAll = (): void => chmodSync(rig.daemon.socket, 0o666);

const at = (name: string): string => join(images, name);

function disk(name: string, head: Buffer = Buffer.alloc(0)): string {
  writeFileSync(at(name), Buffer.concat([head, Buffer.alloc(1 << 20)]));
  return at(name);
}

interface Answer {
  readonly pod?: { readonly name: string; readonly state: string };
  readonly plan?: unknown;
  readonly code?: string;
  readonly message?: string;
  readonly info: { readonly code?: string; readonly field?: string; readonly hint?: string };
}

/** Asks as an operator, by curl. */
async function ask(method: string, request: object): Promise<Answer> {
  const { stdout } = await run("setpriv", [
    ...operator,
    ..."curl -sS --max-time 60 -H content-type:application/json --unix-socket".split(" "),
    rig.daemon.socket,
    "--data-binary",
    JSON.stringify(request),
    `http://podnet/podnet.v1.PodService/${method}`,
  ]);
  const answer = JSON.parse(stdout) as Answer & {
    readonly details?: readonly { readonly debug: Answer["info"] }[];
  };
  return { ...answer, info: answer.details?.[0]?.debug ?? {} };
}

const withDisk = (path: string, more: object = {}) => ({
  spec: { name: "asked", boot: { disks: [{ path, ...more }] } },
});

/** Refused when only planned, when created, and when created with its steps printed. */
async function refused(t: ExecutionContext, request: { spec: object }, field: string) {
  for (const each of [request, { ...request, planOnly: true }]) {
    const { code, message, info } = await ask("Create", each);
    t.is(code, "permission_denied", `${message}`);
    t.is(info.code, "PERMISSION_DENIED");
    t.is(info.field, field);
    t.true(message?.includes(images), message);
    t.regex(info.hint ?? "", /access\.image_paths/);
  }
}

test.serial("files elsewhere: refused to an operator, whatever the path looks like", async (t) => {
  symlinkSync(secret, at("link.img"));
  symlinkSync("/etc", at("etc"));
  mkdirSync(`${images}-alongside`);
  copyFileSync(at("own.img"), join(`${images}-alongside`, "near.img"));
  const paths = [
    secret,
    at("link.img"),
    join(at("etc"), "shadow"),
    `${images}/../..${secret}`,
    `${images}//..//podnet-allowed-${process.pid}-alongside/near.img`,
    join(`${images}-alongside`, "near.img"),
    `${images}-alongside`,
    join(rig.daemon.stateDir, "state.db"),
    `/proc/${rig.daemon.process.pid}/environ`,
    "/proc/self/root/etc/shadow",
    "/dev/zero",
    "/",
  ];
  for (const path of paths) await refused(t, withDisk(path), "boot.disks[0].path");
  await refused(t, { spec: { boot: { kernel: secret } } }, "boot.kernel");
  await refused(t, { spec: { boot: { initrd: at("link.img") } } }, "boot.initrd");
  t.deepEqual((await rig.client.pods.list({})).pods, []);
});

test.serial("whether a file elsewhere is there is not revealed", async (t) => {
  const reported = async (path: string): Promise<string | undefined> =>
    (await ask("Create", withDisk(path))).message?.replace(path, "PATH");
  t.is(await reported("/etc/nothing-of-this-name"), await reported(secret));
  t.is(await reported(join(at("etc"), "nothing")), await reported(secret));
  t.is((await ask("Create", withDisk(at("nothing")))).info.code, "IMAGE_MISSING");
});

test.serial("a pod file of an operator's is refused by the command, with the field", async (t) => {
  const file = at("pod.yaml");
  writeFileSync(file, `name: filed\nboot:\n  disks:\n    - path: ${secret}\n`);
  const podnet = resolve(import.meta.dirname, "../../bin/podnet");
  const error = await t.throwsAsync(
    run("setpriv", [...operator, podnet, "create", "-f", file], {
      env: { ...process.env, HOME: "/nonexistent", PODNET_SOCKET: rig.daemon.socket },
    }),
  );
  t.regex((error as { stderr?: string } | undefined)?.stderr ?? "", /boot\.disks\[0\]\.path/);
});

test.serial(
  "files within, by links within, and the default image: an operator's pod runs",
  async (t) => {
    symlinkSync("own.img", at("within.img"));
    for (const path of [at("own.img"), at("within.img")]) {
      const { pod, message } = await ask("Create", withDisk(path));
      t.is(pod?.state, "POD_STATE_RUNNING", message);
      await ask("Delete", { idOrName: "asked" });
    }
  },
);

test.serial(
  "an operator's pod writes through to a disk of access.write_through_paths alone",
  async (t) => {
    const through = { writeThrough: true };
    const { info } = await ask("Create", withDisk(at("own.img"), through));
    t.is(info.code, "PERMISSION_DENIED");
    t.regex(info.hint ?? "", /access\.write_through_paths/);
    const path = join(writable, "data.img");
    writeFileSync(path, Buffer.alloc(1 << 20));
    const { pod, message } = await ask("Create", withDisk(path, through));
    t.is(pod?.state, "POD_STATE_RUNNING", message);
    await ask("Stop", { idOrName: "asked" });
    // What may be written to is looked at again when it is opened.
    renameSync(path, `${path}.old`);
    symlinkSync(at("own.img"), path);
    t.is((await ask("Start", { idOrName: "asked" })).info.code, "PERMISSION_DENIED");
    await ask("Delete", { idOrName: "asked" });
  },
);

test.serial("a disk that is replaced by a link once its pod is there is not opened", async (t) => {
  const path = disk("swapped.img");
  const boot = { disks: [{ path }], cmdline: "standin.agent=poweroff-after:1500" };
  const { message } = await ask("Create", { spec: { name: "swapped", boot } });
  t.is(message, undefined);
  await whenReported(rig.client, "swapped", /powered off/);
  renameSync(path, `${path}.old`);
  symlinkSync(secret, path);
  t.is((await ask("Start", { idOrName: "swapped" })).info.code, "PERMISSION_DENIED");
  // Not even when an administrator starts it: the pod is the operator's.
  await t.throwsAsync(rig.client.pods.start({ idOrName: "swapped" }), {
    code: "PERMISSION_DENIED",
  });
  // Over a restart, too: what is allowed stands in the pod's plan.
  await rig.restart("stop");
  openToAll();
  await t.throwsAsync(rig.client.pods.start({ idOrName: "swapped" }), {
    code: "PERMISSION_DENIED",
  });
  await rig.client.pods.delete({ idOrName: "swapped" });
});

test.serial("a disk that is replaced between the look and the open is closed again", (t) => {
  const outside = `${images}-outside.img`;
  t.teardown(() => rmSync(outside));
  writeFileSync(outside, Buffer.alloc(1 << 20));
  symlinkSync(outside, at("replaced.img"));
  const plan = {
    disks: [
      { path: at("own.img"), format: "raw", readOnly: true },
      { path: at("replaced.img"), format: "raw", readOnly: true },
    ],
  } as const;
  const error = t.throws(() => openDisks({ ...plan, imagesWithin: [images] }), {
    code: "PERMISSION_DENIED",
  });
  t.is((error as { field?: string } | undefined)?.field, "boot.disks[1].path");
  using unbounded = openDisks(plan);
  t.is(unbounded.fds.length, 2);
});

test.serial(
  "a qcow2 image of an operator's that names a backing file is refused without a jail, too",
  async (t) => {
    const head = Buffer.alloc(104);
    head.write("QFI\u00fb", "latin1");
    head.writeUInt32BE(3, 4);
    head.writeBigUInt64BE(104n, 8);
    const path = disk("backed.qcow2", head);
    const { info, message } = await ask("Create", withDisk(path, { format: "qcow2" }));
    t.is(info.code, "IMAGE_UNREADABLE");
    t.regex(message ?? "", /backing file/);
  },
);

test.serial("an administrator names any file", async (t) => {
  const path = join(`${images}-alongside`, "near.img");
  await refused(t, withDisk(path), "boot.disks[0].path");
  const spec = { name: "any", boot: { disks: [{ path, readOnly: true }] } };
  const { pod } = await rig.client.pods.create({ spec });
  t.is(pod?.name, "any");
  await rig.client.pods.delete({ idOrName: "any" });
});

test.serial("an operator neither takes nor gives a label that policies rely on", async (t) => {
  const key = "admin.podnet/trusted";
  const spec = { name: "labelled", labels: { [key]: "yes" } };
  for (const more of [{}, { planOnly: true }]) {
    const { code, info } = await ask("Create", { spec, ...more });
    t.is(code, "permission_denied");
    t.is(info.field, `labels["${key}"]`);
  }
  const { pods } = rig.client;
  t.deepEqual((await pods.list({})).pods, []);
  const made = await ask("Create", { spec: { name: "labelled", labels: { role: "a" } } });
  t.is(made.pod?.state, "POD_STATE_RUNNING", made.message);
  const idOrName = "labelled";
  const labels = async () => (await pods.get({ idOrName })).pod?.labels;
  t.is((await ask("Label", { idOrName, set: { [key]: "yes" } })).info.field, `set["${key}"]`);
  await pods.label({ idOrName, set: { [key]: "yes" } });
  for (const change of [{ set: { [key]: "yes" } }, { remove: ["role", key] }])
    t.is((await ask("Label", { idOrName, ...change })).code, "permission_denied");
  t.deepEqual(await labels(), { [key]: "yes", role: "a" }, "all of a change or nothing");
  t.is((await ask("Label", { idOrName, set: { role: "b" } })).code, undefined);
  t.deepEqual(await labels(), { [key]: "yes", role: "b" });
  await pods.delete({ idOrName });
});
