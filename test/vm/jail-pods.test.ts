import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { PodPlan } from "../../daemon/pods/store/pod-plan.ts";
import { run } from "../../linux/processes/command.ts";
import { findProcess } from "../../hypervisor/process/process.ts";
import { addressOf, execIn, joinRig, type Rig } from "./daemon-rig.ts";
import { debianGuest, never, rig as openVmRig } from "./hypervisor-rig.ts";

let rig: Rig;

test.serial.before(async () => {
  rig = await joinRig("quarantine_s = 0\n");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

function stored(sql: string, name: string): Readonly<Record<string, unknown>> {
  const db = new DatabaseSync(join(rig.daemon.stateDir, "state.db"), { readOnly: true });
  using _db = { [Symbol.dispose]: () => db.close() };
  return db.prepare(sql).get(name) ?? {};
}
const planOf = (name: string): PodPlan =>
  JSON.parse(String(stored("SELECT plan FROM pods WHERE name = ?", name)["plan"])) as PodPlan;
function runOf(name: string): { readonly pid: number; readonly uid: number } {
  const sql = "SELECT pid, runs.uid FROM runs JOIN pods ON pod_id = id WHERE name = ?";
  const { pid, uid } = stored(sql, name);
  return { pid: Number(pid), uid: Number(uid) };
}
const status = (pid: number): string => readFileSync(`/proc/${pid}/status`, "latin1");
const field = (pid: number, name: string): string =>
  new RegExp(`^${name}:[ \\t]*(.*)$`, "m").exec(status(pid))?.[1] ?? "";

/** Whether programs here get huge pages that they ask for. */
const hasHugePages = /\[madvise\]/.test(
  readFileSync("/sys/kernel/mm/transparent_hugepage/enabled", "latin1"),
);
/** What the kernel says of a process's heap; `hg` is a request for huge pages. */
function heapFlags(pid: number): string[] {
  const parts = readFileSync(`/proc/${pid}/smaps`, "latin1").split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/);
  return parts
    .filter((part) => part.split("\n")[0]?.endsWith("[heap]"))
    .flatMap((part) => /^VmFlags: (.*)$/m.exec(part)?.[1]?.split(" ") ?? []);
}

async function stateOf(name: string): Promise<PodState | undefined> {
  const { pod } = await rig.client.pods.get({ idOrName: name });
  return pod?.state;
}

async function becomes(name: string, state: PodState): Promise<boolean> {
  for (let attempt = 0; attempt < 100; attempt++) {
    if ((await stateOf(name)) === state) return true;
    await delay(50);
  }
  return false;
}

test.serial(
  "each QEMU is a user of its own, without privilege, in namespaces of its own",
  async (t) => {
    for (const name of ["one", "two"]) await rig.client.pods.create({ spec: { name } });
    const [one, two] = [runOf("one"), runOf("two")];
    // Without memory on the host they are ended before podnetd.
    t.is(readFileSync(`/proc/${one.pid}/oom_score_adj`, "latin1").trim(), "500");
    t.is(new Set([one.uid, two.uid, 0]).size, 3);
    for (const { pid, uid } of [one, two]) {
      t.is(heapFlags(pid).includes("hg"), hasHugePages);
      // The recorded pid is QEMU's, not the launcher's.
      t.true(readlinkSync(`/proc/${pid}/exe`).endsWith("/qemu-system-x86_64"));
      t.deepEqual(new Set(field(pid, "Uid").split("\t")), new Set([`${uid}`]));
      t.deepEqual(new Set(field(pid, "Gid").split("\t")), new Set([`${uid}`]));
      t.is(field(pid, "Groups").trim(), "");
      for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
        t.regex(field(pid, set), /^0+$/);
      t.is(field(pid, "NoNewPrivs"), "1");
      t.is(field(pid, "Seccomp"), "2");
      // The jail's filter and QEMU's own.
      t.is(field(pid, "Seccomp_filters"), "2");
      t.regex(field(pid, "NSpid"), /\t1$/);
      for (const kind of ["mnt", "pid", "ipc", "uts", "net", "cgroup"]) {
        const own = readlinkSync(`/proc/${pid}/ns/${kind}`);
        t.not(own, readlinkSync(`/proc/self/ns/${kind}`), kind);
        t.not(own, readlinkSync(`/proc/${pid === one.pid ? two.pid : one.pid}/ns/${kind}`), kind);
      }
      for (const path of [
        "etc/passwd",
        "bin",
        "home",
        "root",
        "sys/class",
        "sys/kernel/mm/transparent_hugepage/defrag",
        "tmp/podnet",
        "usr/bin/sh",
        "dev/kvm",
      ])
        t.false(existsSync(`/proc/${pid}/root/${path}`), path);
    }
    t.true(existsSync(`/proc/${one.pid}/root${planOf("one").vm.runDir}/qmp.sock`));
    t.false(existsSync(`/proc/${one.pid}/root${planOf("two").vm.runDir}`));
  },
);

test.serial(
  "the launcher keeps no capability and no descriptor, and nothing of it is needed",
  async (t) => {
    const { pid } = runOf("one");
    const launcher = Number(field(pid, "PPid"));
    t.true(readlinkSync(`/proc/${launcher}/exe`).endsWith("/podnet-jail"));
    for (const set of ["CapInh", "CapPrm", "CapEff", "CapAmb"])
      t.regex(field(launcher, set), /^0+$/);
    t.throws(() => readlinkSync(`/proc/${launcher}/fd/0`), { code: "ENOENT" });
    t.notRegex(readFileSync(`/proc/${launcher}/cmdline`, "latin1"), /guest=/);
    process.kill(launcher, "SIGKILL");
    await delay(500);
    t.is(await stateOf("one"), PodState.RUNNING);
    t.is((await execIn(rig.client, "one", "true")).code, 0);
    // Its end is reported all the same.
    process.kill(pid, "SIGKILL");
    t.true(await becomes("one", PodState.FAILED));
    await rig.client.pods.start({ idOrName: "one" });
    t.is(await stateOf("one"), PodState.RUNNING);
    t.is(planOf("one").vm.jail?.uid, runOf("one").uid);
  },
);

test.serial(
  "its limits are what the plan says, and one that meets its own takes no other along",
  async (t) => {
    const limits = new Map<string, string>(
      planOf("two").vm.jail?.cgroups.flatMap(({ path, files }) =>
        files.map(([name, value]) => [`${path}/${name}`, value] as const),
      ),
    );
    t.true(limits.size >= 2);
    for (const [file, value] of limits) t.is(readFileSync(file, "latin1").trim(), value, file);
    const memory = String(
      [...limits.keys()].find((file) => /memory\.(?:max|limit_in_bytes)$/.test(file)),
    );
    t.is(Number(limits.get(memory)), (128 + 256) * 2 ** 20);
    // The machine may have what it uses now and 8 MiB; its guest takes 60.
    const usage = readFileSync(
      memory.replace("limit_in_bytes", "usage_in_bytes").replace("memory.max", "memory.current"),
      "latin1",
    );
    const bound = `${Number(usage) + 8 * 2 ** 20}`;
    writeFileSync(memory, bound);
    writeFileSync(memory.replace("memory.limit", "memory.memsw.limit"), bound);
    await execIn(
      rig.client,
      "two",
      "sh",
      "-c",
      "mkdir -p /fill; mount -t tmpfs none /fill; dd if=/dev/zero of=/fill/x bs=1M count=60",
    ).catch(() => {});
    t.true(await becomes("two", PodState.FAILED));
    const { pod } = await rig.client.pods.get({ idOrName: "two" });
    t.regex(pod?.reason ?? "", /SIGKILL, beyond its memory limit/);
    t.is(await stateOf("one"), PodState.RUNNING);
    await rig.lab.host.ping(addressOf((await rig.client.pods.get({ idOrName: "one" })).pod));
  },
);

test.serial(
  "a QEMU without record is found by its group; the plan shows its whole command line",
  async (t) => {
    const { podId, vm } = planOf("one");
    t.is(findProcess(vm)?.pid, runOf("one").pid);
    // What is planned for another pod, as a shell takes it, is what runs for this one.
    const { plan } = await rig.client.pods.create({ spec: { name: "shown" }, planOnly: true });
    const line = plan?.sections.find(({ step }) => step === "vm.start")?.lines[0] ?? "";
    const { stdout } = await run(["sh", "-c", `printf '%s\\0' ${line}`]);
    const argv = stdout
      .split("\0")
      .slice(0, -1)
      .map((word) => word.replaceAll(plan?.podId ?? "", podId));
    t.regex(argv[0] ?? "", /podnet-jail$/);
    const uids = argv.map(Number).filter((uid) => Math.abs(uid - runOf("one").uid) <= 2);
    t.is(uids.length > 0, true, "the plan names a user");
    t.true(
      argv.includes("on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
    );
    const running = readFileSync(`/proc/${runOf("one").pid}/cmdline`, "utf8")
      .split("\0")
      .slice(0, -1);
    // Each pod has a MAC of its own.
    const anyMac = (words: readonly string[]): string[] =>
      words.map((word) => word.replace(/mac=[0-9a-f:]{17}/, "mac=any"));
    t.deepEqual(anyMac(argv.slice(argv.indexOf("--") + 1)), anyMac(running));
  },
);

test.serial("an image its user may not read is refused before anything is made", async (t) => {
  const initrd = join(rig.directory, "initrd");
  copyFileSync(debianGuest.initrd, initrd);
  chmodSync(initrd, 0o600);
  const before = await rig.inventory();
  const error = await t.throwsAsync(
    rig.client.pods.create({ spec: { name: "secret", boot: { initrd } } }),
  );
  t.regex(error.message, /cannot be read.*users of their own \(chmod o\+r\)/);
  t.deepEqual(await rig.changes(before), []);
  chmodSync(initrd, 0o644);
  await rig.client.pods.create({ spec: { name: "secret", boot: { initrd } } });
  await rig.client.pods.delete({ idOrName: "secret" });
});

test.serial("a guest writes to a disk that its QEMU could not open", async (t) => {
  const path = join(rig.directory, "disk.img");
  writeFileSync(path, new Uint8Array(1 << 20), { mode: 0o600 });
  const boot = { disks: [{ path, writeThrough: true }] };
  await rig.client.pods.create({ spec: { name: "disk", boot } });
  const { code, output } = await execIn(
    rig.client,
    "disk",
    "sh",
    "-c",
    "echo written > /dev/vda && sync; head -c 8 /dev/vda",
  );
  t.is(code, 0, output);
  t.is(readFileSync(path, "latin1").slice(0, 8), "written\n");
  await rig.client.pods.delete({ idOrName: "disk" });
});

test.serial(
  "a launcher that fails is reported by a code of its own, and nothing is left",
  async (t) => {
    await using it = await openVmRig("deaf");
    // A directory that is no control group.
    const path = join(it.directory, "group");
    const plan = { ...it.plan, jail: { uid: 2_000_000_000, cgroups: [{ path, files: [] }] } };
    const error = await t.throwsAsync(it.driver.start(plan, never));
    t.like(error, { code: "JAIL_FAILED", step: "vm.start" });
    t.regex(error.message, /open .*\/group\/cgroup\.procs: No such file or directory/);
    t.false(existsSync(path));
    t.false(existsSync(plan.runDir));
  },
);

test.serial("a qcow2 image that names a file of the host's is refused, and not read", async (t) => {
  await using it = await openVmRig("deaf");
  const path = join(it.directory, "backed.qcow2");
  const image = Buffer.alloc(1 << 16);
  image.write("QFI\u00fb", "latin1");
  image.writeUInt32BE(3, 4);
  image.writeBigUInt64BE(512n, 8);
  image.writeUInt32BE("/etc/shadow".length, 16);
  image.write("/etc/shadow", 512);
  writeFileSync(path, image);
  const disks = [{ path, format: "qcow2", readOnly: true }] as const;
  const plan = { ...it.plan, disks, jail: { uid: 2_000_000_000, cgroups: [] } };
  const error = await t.throwsAsync(it.driver.start(plan, never));
  t.like(error, { code: "IMAGE_UNREADABLE", field: "boot.disks[0].path" });
  t.regex(error.message, /backing file/);
  t.false(existsSync(plan.runDir));
});

test.serial(
  "the user of a machine that outlived its pod goes to no other until it has ended",
  async (t) => {
    const wordsOf = async (option: string): Promise<readonly string[]> => {
      const plan = await rig.daemon.podnet("create", "--plan");
      return [...plan.matchAll(new RegExp(`${option} (\\S+)`, "g"))].map(([, word]) => word ?? "");
    };
    const planned = async (): Promise<number> => Number((await wordsOf("--uid"))[0]);
    const uid = await planned();
    const left = spawn("sleep", ["60"], { uid, gid: uid, stdio: "ignore" });
    t.teardown(() => left.kill("SIGKILL"));
    await once(left, "spawn");
    const groups = (await wordsOf("--cgroup")).map((group) => join(dirname(group), "left"));
    for (const group of groups) {
      mkdirSync(group);
      writeFileSync(join(group, "cgroup.procs"), `${left.pid}`);
    }
    t.true(groups.length > 0);
    t.is(await planned(), uid + 1);
    left.kill("SIGKILL");
    await once(left, "exit");
    t.is(await planned(), uid);
    for (const group of groups) rmdirSync(group);
  },
);

test.serial("after deleting nothing is left of groups, users and directories", async (t) => {
  const groups = ["one", "two"].flatMap(
    (name) => planOf(name).vm.jail?.cgroups.map(({ path }) => path) ?? [],
  );
  t.true(groups.some((path) => existsSync(path)));
  t.true((await rig.changes()).some((line) => line.startsWith("+ control group ")));
  for (const idOrName of ["one", "two"]) await rig.client.pods.delete({ idOrName });
  for (const path of groups) t.false(existsSync(path), path);
  t.deepEqual(await rig.changes(), []);
  rmSync(join(rig.directory, "initrd"), { force: true });
});
