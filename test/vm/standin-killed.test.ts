import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { addressOf, execIn, type Rig } from "./daemon-rig.ts";
import { create, eventually, joinStandInRig, whenReported } from "./standin-rig.ts";

let rig: Rig;

test.serial.before(async () => {
  rig = await joinStandInRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/**
 * Every moment of a create at which something is asked of the machine or its guest, in their order.
 */
const moments = [
  "qmp_capabilities",
  "qom-list",
  "query-status",
  "cont",
  "ready",
  "getVersion",
  "hello",
  "configure",
  "getfd",
  "netdev_add",
  "device_add",
] as const;

/** What podnetd asks a machine that runs already, and its guest, when it takes them over. */
const takenOver = [
  "qmp:qmp_capabilities",
  "qmp:qom-list",
  "qmp:qom-get",
  "qmp:query-status",
  "channel:getVersion",
  "channel:hello",
] as const;

/** What machines and guests are asked meanwhile, as podnetd itself reaches outside. */
async function askedFor(what: () => Promise<unknown>): Promise<readonly string[]> {
  const record = join(rig.directory, "record");
  await rig.restart("stop", { PODNET_FAILPOINTS: `record:${record}` });
  await what();
  const asked = readFileSync(record, "utf8").matchAll(/^((?:qmp|channel):.+):before#1$/gm);
  await rig.restart("stop");
  rmSync(record);
  return Array.from(asked, ([, name = ""]) => name);
}

test.serial(
  "at these moments something is asked of QEMU or its guest, and at no others",
  async (t) => {
    const created = await askedFor(() => create(rig.client, "asked"));
    // The guest sends READY unasked.
    t.deepEqual(
      created.map((name) => name.replace(/^\w+:/, "")).toSorted(),
      moments.filter((moment) => moment !== "ready").toSorted(),
    );
    const deleted = await askedFor(() => rig.client.pods.delete({ idOrName: "asked" }));
    t.deepEqual(deleted.toSorted(), [...takenOver, "channel:destroyPod"].toSorted());
    t.deepEqual(await rig.changes(), []);
  },
);

for (const moment of takenOver) {
  test.serial(
    `QEMU killed when podnetd takes it over, at ${moment}: reported, and freed`,
    async (t) => {
      const pod = await create(rig.client, "taken");
      const record = join(rig.directory, "record");
      rmSync(record, { force: true });
      const point = `${moment}:before#1`;
      const restarted = rig.restart("kill", {
        PODNET_FAILPOINTS: `record:${record};${point}=hang:300`,
      });
      await written(record, point);
      kill(pod.vm?.pid);
      await restarted;
      await whenReported(rig.client, "taken", /QEMU_EXITED/);
      await whenFreed(t, "taken");
      await rig.client.pods.delete({ idOrName: "taken" });
      await whenFreed(t, "taken");
    },
  );
}

test.serial("nothing is left of any machine that was killed as it was taken over", async (t) => {
  await rig.restart("stop");
  t.deepEqual(await rig.changes(), []);
});

/** Waits until a line stands in a file. */
async function written(file: string, line: string): Promise<void> {
  for (let waited = 0; waited < 1000; waited++) {
    if (existsSync(file) && readFileSync(file, "utf8").split("\n").includes(line)) return;
    await delay(10);
  }
  throw new Error(`No ${line}`);
}

for (const moment of moments) {
  test.serial(`QEMU killed at ${moment}: the create fails and leaves nothing`, async (t) => {
    const error = await t.throwsAsync(create(rig.client, "killed", `standin.qemu=die:${moment}`));
    t.true(isPodnetError(error, "QEMU_EXITED"), String(error));
    t.truthy(isPodnetError(error) ? error.hint : "");
    t.deepEqual(await rig.changes(), []);
  });
}

test.serial("QEMU that ends at its start says why", async (t) => {
  const error = await t.throwsAsync(create(rig.client, "killed", "standin.qemu=exit:1"));
  t.true(isPodnetError(error, "QEMU_EXITED"));
  t.regex(error?.message ?? "", /exit code 1: the stand-in was asked to end/);
  t.deepEqual(await rig.changes(), []);
});

test.serial("all of them at once, and a good one among them", async (t) => {
  const good = create(rig.client, "good");
  const bad = moments.map((moment) =>
    create(
      rig.client,
      `at-${moment.toLowerCase().replaceAll("_", "-")}`,
      `standin.qemu=die:${moment}`,
    ),
  );
  const outcomes = await Promise.allSettled(bad);
  t.true(outcomes.every(({ status }) => status === "rejected"));
  t.deepEqual(await execIn(rig.client, "good", "echo", "alive"), { output: "alive\n", code: 0 });
  await rig.lab.host.ping(addressOf(await good), 1);
  await rig.client.pods.delete({ idOrName: "good" });
  t.deepEqual(await rig.changes(), []);
});

/** Promise 19: state and event within a second, and everything but the addresses freed. */
async function killed(t: ExecutionContext, name: string, kill: () => void): Promise<void> {
  const before = Date.now();
  kill();
  const at = await whenReported(rig.client, name, /QEMU_EXITED/);
  t.true(at >= Math.floor(before) && at - before <= 1000, `${at - before} ms until the event`);
  const { pod } = await rig.client.pods.get({ idOrName: name });
  t.is(pod?.state, PodState.FAILED);
  t.is(pod?.failure?.code, "QEMU_EXITED");
  await whenFreed(t, name);
}

/**
 * The state is reported first, then what the machine held is freed; the rows and the addresses stay
 * the pod's.
 */
async function whenFreed(t: ExecutionContext, name: string): Promise<void> {
  const deadline = performance.now() + 10_000;
  for (;;) {
    const held = (await rig.changes()).filter(
      // (The plan kept alongside the row goes with it. What records the failpoints is the test's
      // own.)
      (line) => !/^[-+] (?:row|in-use) |\/plans\/[^/]+\.json$|\/record$/.test(line),
    );
    if (held.length > 0 && performance.now() < deadline) continue;
    t.deepEqual(held, [], name);
    return;
  }
}

const kill = (pid: number | undefined): void => {
  process.kill(pid ?? Number.NaN, "SIGKILL");
};

test.serial("QEMU killed while its pod runs; started again it has its addresses", async (t) => {
  const pod = await create(rig.client, "victim");
  await killed(t, "victim", () => kill(pod.vm?.pid));
  t.false(await rig.lab.host.reaches(addressOf(pod)));
  const again = await rig.client.pods.start({ idOrName: "victim" });
  t.is(again.pod?.state, PodState.RUNNING);
  t.is(addressOf(again.pod), addressOf(pod));
  await rig.lab.host.ping(addressOf(pod), 1);
  await rig.client.pods.delete({ idOrName: "victim" });
  t.deepEqual(await rig.changes(), []);
});

test.serial(
  "QEMU killed in the middle of a start: the pod stays, with its addresses",
  async (t) => {
    const pod = await create(rig.client, "starter", "standin.agent=slow:300");
    await killed(t, "starter", () => kill(pod.vm?.pid));
    const { cursor } = await rig.client.pods.list({});
    const machine = eventually(rig.client, ({ span }) => span?.step === "vm.start", cursor);
    const start = rig.client.pods.start({ idOrName: "starter" });
    const refused = t.throwsAsync(start, { code: "QEMU_EXITED" });
    const [pid] = /\d+/.exec((await machine).span?.detail ?? "") ?? [];
    kill(Number(pid));
    await refused;
    const { pod: failed } = await rig.client.pods.get({ idOrName: "starter" });
    t.is(failed?.state, PodState.FAILED);
    t.is(addressOf(failed), addressOf(pod));
    await whenFreed(t, "starter");
    t.is(addressOf((await rig.client.pods.start({ idOrName: "starter" })).pod), addressOf(pod));
    await rig.client.pods.delete({ idOrName: "starter" });
    t.deepEqual(await rig.changes(), []);
  },
);

test.serial("QEMU killed that is another podnetd's child", async (t) => {
  const pod = await create(rig.client, "adopted");
  await rig.restart("kill");
  await killed(t, "adopted", () => kill(pod.vm?.pid));
  await rig.client.pods.delete({ idOrName: "adopted" });
  t.deepEqual(await rig.changes(), []);
});

test.serial("QEMU killed when it is asked to quit: the delete goes on", async (t) => {
  await create(rig.client, "quitter", "standin.qemu=die:quit");
  t.true((await rig.client.pods.delete({ idOrName: "quitter", force: true })).existed);
  await create(rig.client, "quitter", "standin.qemu=die:destroyPod");
  t.true((await rig.client.pods.delete({ idOrName: "quitter" })).existed);
  t.deepEqual(await rig.changes(), []);
});

interface Planted {
  readonly pid: number;
  readonly startTime?: string;
  readonly bootId?: string;
}

/** Changes what the record says of a pod and its process, podnetd being down. */
function plant(name: string, state: string, { pid, startTime, bootId }: Planted): void {
  using db = new DatabaseSync(join(rig.daemon.stateDir, "state.db"));
  const id = "(SELECT id FROM pods WHERE name = ?)";
  const set = (column: string, value: string | number | undefined): void => {
    if (value === undefined) return;
    const { changes } = db
      .prepare(`UPDATE runs SET ${column} = ? WHERE pod_id = ${id}`)
      .run(value, name);
    if (changes !== 1) throw new Error("The pod has no run");
  };
  set("pid", pid);
  set("start_time", startTime);
  set("boot_id", bootId);
  db.prepare("UPDATE pods SET state = ? WHERE name = ?").run(state, name);
}

const otherBoot = "00000000-0000-4000-8000-000000000000";
const foreigners: readonly (readonly [string, (pid: number) => Planted])[] = [
  ["began at another time", (pid) => ({ pid })],
  [
    "began at the same time of another boot",
    (pid) => ({ pid, startTime: startTimeOf(pid), bootId: otherBoot }),
  ],
];

/**
 * By hand, so that what is tested is not what tests: the process's state, and field 22 of its line
 * (proc(5)).
 */
const statOf = (pid: number): readonly string[] =>
  readFileSync(`/proc/${pid}/stat`, "latin1")
    .replace(/^.*\) /, "")
    .split(" ");
const startTimeOf = (pid: number): string => statOf(pid)[19] ?? "";
const isAlive = (pid: number): boolean => existsSync(`/proc/${pid}`) && statOf(pid)[0] !== "Z";

/**
 * Recovery looks for the machine of a pod that runs, and ends that of one that was being created or
 * deleted.
 */
for (const state of ["running", "creating", "deleting"]) {
  for (const [what, planted] of foreigners) {
    test.serial(
      `a ${state} pod's pid that is a process which ${what}: never signalled`,
      async (t) => {
        const pod = await create(rig.client, "gone");
        await rig.daemon.kill();
        kill(pod.vm?.pid);
        const foreign = spawn("sleep", ["1000"], { stdio: "ignore" });
        await once(foreign, "spawn");
        const pid = foreign.pid ?? 0;
        t.teardown(() => foreign.kill("SIGKILL"));
        plant("gone", state, planted(pid));
        await rig.restart("kill");
        t.true(isAlive(pid), "at the recovery");
        if (state !== "deleting") {
          await rig.client.pods.start({ idOrName: "gone" });
          t.true(isAlive(pid), "at a start");
        }
        await rig.client.pods.delete({ idOrName: "gone", force: true });
        t.true(isAlive(pid), "at a delete");
        t.deepEqual(await rig.changes(), []);
      },
    );
  }
}

test.serial("a process that is ours, by its time and boot, is ended", async (t) => {
  // The other side of the check: without this, signalling no process would pass.
  const pod = await create(rig.client, "ours", "standin.qemu=hang:quit");
  const pid = pod.vm?.pid ?? 0;
  await rig.daemon.kill();
  plant("ours", "deleting", { pid });
  await rig.restart("kill");
  t.false(isAlive(pid));
  t.deepEqual(await rig.changes(), []);
});
