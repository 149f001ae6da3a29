import { copyFileSync, mkdtempSync, readdirSync, readFileSync, utimesSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { templateNicMac } from "../../hypervisor/driver.ts";
import { until } from "../lab/until.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;

/** A file of our own: it is replaced under the pool. */
const initrd = join(mkdtempSync(join(tmpdir(), "podnet-pool-")), "initramfs.gz");

test.serial.before(async () => {
  copyFileSync(join(import.meta.dirname, "../../build/image/initramfs.gz"), initrd);
  rig = await openRig(`factory = "pool"
quarantine_s = 0
[image]
initrd = "${initrd}"
[pool]
size = 2
classes = ["2x160=1"]
`);
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** The ids of machines that wait, or come. */
const marked = (): string[] =>
  readdirSync(join(rig.directory, "run/pods"))
    .filter((name) => name.startsWith("parked-"))
    .map((name) => name.slice("parked-".length));

/** Waits until `count` machines wait, and answers their ids. */
async function full(count = 3): Promise<string[]> {
  return await until(
    "the pool to be full",
    () => {
      const stopped = marked().filter(isStopped);
      return stopped.length === count && stopped;
    },
    60_000,
    () => rig.daemon.log(),
  );
}

/** Whether podnetd has said that the machine waits. */
const isStopped = (id: string): boolean =>
  rig.daemon
    .log()
    .split("\n")
    .some((line) => line.includes(`"pod_id":"${id}"`) && line.includes("waits in the pool"));

/** What there is more than at first, when the pool was being filled. */
const added = async (): Promise<readonly string[]> =>
  (await rig.changes()).filter((line) => line.startsWith("+"));

const detailOf = async (name: string, step: string): Promise<string> => {
  const { pod } = await rig.client.pods.get({ idOrName: name });
  return pod?.spans.find((span) => span.step === step)?.detail ?? "";
};

test.serial("a pod takes a machine that waits, and is a pod like any other", async (t) => {
  await full();
  const { pod: one } = await rig.client.pods.create({ spec: { name: "one" } });
  const { pod: two } = await rig.client.pods.create({ spec: { name: "two" } });
  for (const name of ["one", "two"]) t.regex(await detailOf(name, "vm.start"), /from the pool$/);
  for (const pod of [one, two]) await rig.lab.host.ping(addressOf(pod));
  const selves = await Promise.all(
    ["one", "two"].map(async (name) => {
      const script = `hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id
        cat /proc/sys/kernel/random/uuid; date +%s; ip -4 -o address; cat /sys/class/net/*/address`;
      return (await execIn(rig.client, name, "sh", "-c", script)).output.split("\n");
    }),
  );
  selves.forEach(([hostname, machineId = "", , , seconds = ""], i) => {
    t.is(hostname, ["one", "two"][i]);
    t.regex(machineId, /^[0-9a-f]{32}$/);
    t.true(Math.abs(Number(seconds) * 1000 - Date.now()) < 20_000);
  });
  // machine-id, boot id and what is drawn next.
  for (const line of [1, 2, 3]) t.not(selves[0]?.[line], selves[1]?.[line]);
  const text = selves.flat().join("\n");
  t.false(text.includes("192.0.2."), "nothing of the rehearsal is left");
  t.false(text.includes(templateNicMac));
  for (const pod of [one, two]) t.true(text.includes(pod?.interfaces[0]?.mac ?? "none"));
  t.true((await rig.client.pods.verify({ idOrName: "one" })).ok);
});

test.serial("the pool fills again, and a machine that waits takes no processor time", async (t) => {
  const ids = await full();
  const ticks = (): number[] =>
    ids.map((id) => {
      const pid = pidOf(id);
      const fields = readFileSync(`/proc/${pid}/stat`, "latin1")
        .replace(/^.*\) /, "")
        .split(" ");
      return Number(fields[11]) + Number(fields[12]);
    });
  const before = ticks();
  await rig.client.pods.list({});
  await execIn(rig.client, "one", "sleep", "1");
  for (const [i, after] of ticks().entries()) t.true(after - (before[i] as number) <= 2);
});

test.serial("a pod that no machine fits is cloned, and says so", async (t) => {
  await full();
  await rig.client.pods.create({ spec: { name: "large", resources: { memoryMib: 192 } } });
  t.regex(await detailOf("large", "vm.start"), /a clone with its NIC; the pool had none like it$/);
  const disk = await rig.daemon.tryPodnet("create", "--factory=pool", "--disk=/dev/null");
  t.regex(disk.stderr, /UNSUPPORTED[^]*field: boot\.factory/);
  await rig.client.pods.delete({ idOrName: "large" });
});

test.serial("the pool is shown, drained and filled", async (t) => {
  await full();
  const poolNow = async () => (await rig.client.node.listPools({})).pools[0];
  const { pools, unlike } = await rig.client.node.listPools({});
  t.deepEqual([pools.length, unlike], [2, 1n]);
  t.like(pools[1], { vcpu: 2, memoryMib: 160, size: 1, ready: 1 });
  const before = await poolNow();
  t.like(before, { size: 2, ready: 2, vcpu: 1, memoryMib: 128, claimed: 2n, missed: 0n });
  t.true((before?.memoryBytes ?? 0n) > 1_000_000n);
  t.true(before?.initrd.startsWith("/"));
  const pids = marked().map(pidOf);
  t.is(await rig.daemon.podnet("pool", "drain"), "Ended 3 machines\n");
  for (const pid of pids) t.throws(() => process.kill(pid, 0), { code: "ESRCH" });
  t.deepEqual(marked(), []);
  t.like(await poolNow(), { ready: 0, memoryBytes: 0n });
  t.true((await rig.client.node.listPools({})).drained);
  await rig.client.pods.create({ spec: { name: "drained" } });
  t.regex(await detailOf("drained", "vm.start"), /the pool had none like it$/);
  await rig.client.pods.delete({ idOrName: "drained" });
  t.deepEqual(marked(), [], "a create does not fill it");
  const shown = await rig.daemon.tryPodnet("pool", "list");
  t.regex(
    shown.stdout,
    /^IMAGE .*\n\/\S+ +1 +\d+MiB +0 +2 +0 B +2 +1\n\/\S+ +2 +160MiB +0 +1 +0 B +0 +0\n$/,
  );
  t.regex(shown.stderr, /^Creates that asked for a machine like none of these: 1$/m);
  t.regex(shown.stderr, /^The pools are drained; podnet pool fill fills them$/m);
  t.is(await rig.daemon.podnet("pool", "fill"), "3 machines wait for a pod\n");
  t.like(await poolNow(), { ready: 2, missed: 1n });
  const words = ["-s", "--unix-socket", rig.daemon.socket, "http://podnet/metrics"];
  const metrics = await rig.lab.host.run("curl", ...words);
  t.regex(metrics, /^podnet_pool_machines\{size="2x160"\} 1$/m);
  t.regex(metrics, /^podnet_pool_misses_total\{reason="empty"\} 1$/m);
});

test.serial("a pod of another size takes a machine of its size class", async (t) => {
  await full();
  const resources = { vcpu: 2, memoryMib: 160 };
  const { pod } = await rig.client.pods.create({ spec: { name: "wide", resources } });
  t.regex(await detailOf("wide", "vm.start"), /from the pool$/);
  await rig.lab.host.ping(addressOf(pod));
  t.is(
    (await execIn(rig.client, "wide", "grep", "-c", "^processor", "/proc/cpuinfo")).output,
    "2\n",
  );
  await rig.client.pods.delete({ idOrName: "wide" });
});

test.serial("machines of an image that was replaced are replaced", async (t) => {
  const ids = await full();
  utimesSync(initrd, new Date(), new Date());
  await rig.client.pods.create({ spec: { name: "newer" } });
  t.regex(await detailOf("newer", "vm.start"), /the pool had none like it$/);
  await rig.client.pods.delete({ idOrName: "newer" });
  await until("the machines to be ended", () => ids.every((id) => !marked().includes(id)));
  await full();
  await rig.client.pods.create({ spec: { name: "newest" } });
  t.regex(await detailOf("newest", "vm.start"), /from the pool$/);
  await rig.client.pods.delete({ idOrName: "newest" });
});

test.serial("stop and start of a pod from the pool, and a reboot of its guest", async (t) => {
  await rig.daemon.podnet("stop", "two");
  await rig.daemon.podnet("start", "two");
  const { pod } = await rig.client.pods.get({ idOrName: "two" });
  await rig.lab.host.ping(addressOf(pod));
  await execIn(rig.client, "one", "sh", "-c", "reboot -f & exit 0").catch(() => {});
  await until("the guest to be configured again", async () => {
    const { pod: again } = await rig.client.pods.get({ idOrName: "one" });
    const answers = (): Promise<boolean> =>
      rig.lab.host.ping(addressOf(again)).then(
        () => true,
        () => false,
      );
    return again?.vm?.guestRestarts === 1 && (await answers());
  });
  t.pass();
});

test.serial("a machine that ends while it waits is replaced", async (t) => {
  const [victim = ""] = await full();
  process.kill(pidOf(victim), "SIGKILL");
  await until("it to be cleaned up", () => !marked().includes(victim));
  t.false((await full()).includes(victim));
});

test.serial("podnetd killed: pods run on, and machines that waited are ended", async (t) => {
  const ids = await full();
  const pids = ids.map(pidOf);
  await rig.restart("kill", { PODNET_FACTORY: "template" });
  for (const pid of pids) t.throws(() => process.kill(pid, 0), { code: "ESRCH" });
  t.deepEqual(marked(), []);
  for (const { name } of (await rig.client.pods.list({})).pods)
    t.is((await execIn(rig.client, name, "echo", "alive")).output, "alive\n");
  for (const { id } of (await rig.client.pods.list({})).pods)
    await rig.client.pods.delete({ idOrName: id });
  t.deepEqual(await added(), []);
});

test.serial("podnetd that ends takes its pool with it", async (t) => {
  await rig.restart("stop");
  await full();
  await rig.restart("stop", { PODNET_FACTORY: "cold" });
  t.deepEqual(await added(), []);
  t.deepEqual((await rig.client.node.listPools({})).pools, []);
  const refused = await rig.daemon.tryPodnet("pool", "fill");
  t.regex(refused.stderr, /UNSUPPORTED[^]*hint: Set factory = "pool"/);
});

test.serial("a pool that cannot be filled says why", async (t) => {
  await rig.restart("stop", { PODNET_FACTORY: "pool", PODNET_POOL_RESERVE_MIB: "4194304" });
  const short = await rig.daemon.tryPodnet("pool", "fill");
  t.regex(short.stderr, /less than 4194304 MiB[^]*LIMIT_REACHED[^]*pool\.reserve_mib/);
  const point = "file:mark parked:before";
  const points = [1, 2, 3, 4].map((n) => `${point}#${n}=error`).join(";");
  await rig.restart("stop", { PODNET_FACTORY: "pool", PODNET_FAILPOINTS: points });
  const failed = await rig.daemon.tryPodnet("pool", "fill");
  t.not(failed.exitCode, 0);
  t.regex(failed.stderr, /Injected|injected|failpoint/i);
  const [pool] = (await rig.client.node.listPools({})).pools;
  t.truthy(pool?.error?.message);
  t.is(pool?.ready, 0);
});

/** While a machine is made, and while it becomes a pod's. */
const points = [
  "file:mark parked:after#2",
  "spawn:qemu:after#2",
  "channel:configure:after#2",
  "file:unmark parked:before#1",
  "file:unmark parked:after#1",
];

for (const point of points) {
  test.serial(`podnetd is killed at ${point}: its next start leaves nothing`, async (t) => {
    await rig.restart("stop", { PODNET_FACTORY: "pool", PODNET_FAILPOINTS: `${point}=kill` });
    const ended = new Promise((resolve) => rig.daemon.process.once("exit", resolve));
    if (point.startsWith("file:unmark")) {
      await full();
      await t.throwsAsync(rig.client.pods.create({ spec: {} }), undefined, "the point is passed");
    }
    await ended;
    await rig.restart("kill", { PODNET_FACTORY: "cold" });
    t.deepEqual((await rig.client.pods.list({})).pods, []);
    t.deepEqual(marked(), []);
    t.deepEqual(await added(), []);
  });
}

/** The QEMU of a machine. */
function pidOf(id: string): number {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const words = readFileSync(`/proc/${pid}/cmdline`, "latin1").split("\0");
      if (words[0]?.includes("qemu") && words.includes(`guest=podnet-${id},debug-threads=on`))
        return Number(pid);
    } catch {
      // It ended while we looked.
    }
  }
  throw new Error(`No machine ${id} runs`);
}
