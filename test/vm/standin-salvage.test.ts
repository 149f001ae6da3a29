import { cpSync, existsSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test, { type ExecutionContext } from "ava";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { qcow2Of } from "../fixtures/disk-image.ts";
import { addressOf, execIn, type Rig } from "./daemon-rig.ts";
import { create, openStandInRig } from "./standin-rig.ts";

/** SQLite's view of the other losses is a unit test's matter (`daemon-damage`). */
const complete = process.env["PODNET_TEST_FULL"] === "1";

const podnetd = join(import.meta.dirname, "../../bin/podnetd");

let rig: Rig;
let pods: readonly Pod[];

test.serial.before(async () => {
  rig = await openStandInRig("quarantine_s = 0\n");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

interface Ended {
  readonly code: number;
  readonly said: string;
}

/** Runs podnetd, or one of its commands, and waits for its end. */
async function podnetdSays(...args: readonly string[]): Promise<Ended> {
  const argv = [podnetd, ...args, "--config", rig.daemon.configFile] as const;
  const child = rig.lab.host.spawn(argv, { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream?.on("data", (chunk: Buffer) => (said += chunk.toString()));
  const code = await new Promise<number>((resolve) => child.once("close", resolve));
  return { code, said };
}

const stateFile = (part = ""): string => join(rig.directory, "state", `state.db${part}`);
const saved = (): string => join(rig.directory, "saved");

/** Each machine is the process that it was, with its sockets and its disks. */
function allLive(t: ExecutionContext, what: string): void {
  for (const { name, id, vm } of pods) {
    const command = readFileSync(`/proc/${vm?.pid}/cmdline`, "latin1");
    t.true(command.includes(`guest=podnet-${id},`), `${what}: ${name} runs`);
    t.true(existsSync(join(rig.directory, "run", "pods", id, "qmp.sock")), `${what}: ${name}`);
  }
  const disks = join(rig.directory, "state", "disks", pods[1]?.id ?? "");
  t.true(existsSync(disks), `${what}: its disks are there`);
}

/** One that has ended may be a zombie yet: podnetd, its parent, was killed. */
function lives(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`).length > 0;
  } catch {
    return false;
  }
}

function flip(file: string): void {
  const bytes = readFileSync(file);
  const at = Math.floor(bytes.length / 2);
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  writeFileSync(file, bytes);
}

/**
 * What happens to the state while podnetd is away; `older` is a copy from before there was any pod.
 */
const damages: Readonly<Record<string, (older: string) => void>> = {
  "one bit of the log is flipped": () => flip(stateFile("-wal")),
  "the log is cut": () =>
    truncateSync(stateFile("-wal"), Math.floor(readFileSync(stateFile("-wal")).length / 3)),
  "the log is deleted": () => rmSync(stateFile("-wal")),
  "an older state is put in its place": (older) => {
    for (const part of ["-wal", "-shm"]) rmSync(stateFile(part), { force: true });
    cpSync(older, stateFile());
  },
  "all of the state is gone, its copy too": () => {
    for (const part of ["", "-wal", "-shm", "-mark", "-copy"])
      rmSync(stateFile(part), { force: true });
  },
};

/** Puts the state back as podnetd left it when it was killed. */
function putBack(): void {
  const state = join(rig.directory, "state");
  rmSync(state, { recursive: true });
  cpSync(saved(), state, { recursive: true, preserveTimestamps: true });
}

test.serial(
  "with part of the state lost podnetd refuses to start, says which machines it does not know, and ends none",
  async (t) => {
    const older = join(rig.directory, "older.db");
    await rig.restart("stop");
    cpSync(stateFile(), older);
    const image = join(rig.directory, "disk.qcow2");
    writeFileSync(image, qcow2Of(Buffer.alloc(512), 1 << 20));
    const first = await create(rig.client, "one");
    const { pod: second } = await rig.client.pods.create({
      spec: { name: "two", boot: { disks: [{ path: image }] }, ports: [{ podPort: 80 }] },
    });
    pods = [first, second as Pod, await create(rig.client, "three")];
    await rig.daemon.kill();
    cpSync(join(rig.directory, "state"), saved(), { recursive: true });
    for (const [what, damage] of Object.entries(damages)) {
      if (!complete && /cut|deleted/.test(what)) continue;
      damage(older);
      const { code, said } = await podnetdSays();
      t.is(code, 1, `${what}: ${said}`);
      t.regex(said, /"code":"STATE_CORRUPT"[^\n]*podnetd state adopt[^\n]*"Cannot start"/, what);
      allLive(t, what);
      if (/gone/.test(what))
        for (const { name, vm } of pods)
          t.regex(said, new RegExp(`\\\\"${name}\\\\" [^\\n]*pid ${vm?.pid}`), what);
      putBack();
    }
    await rig.restart("kill");
    for (const pod of pods) t.is((await get(pod.name)).vm?.pid, pod.vm?.pid);
  },
);

const get = async (name: string): Promise<Pod> =>
  (await rig.client.pods.get({ idOrName: name })).pod as Pod;

/** A pod is what it was, and answers. */
async function isBack(t: ExecutionContext, before: Pod, what: string): Promise<void> {
  const now = await get(before.name);
  t.is(now.state, PodState.RUNNING, `${what}: ${now.reason}`);
  t.is(now.id, before.id, what);
  t.is(now.vm?.pid, before.vm?.pid, what);
  t.is(addressOf(now), addressOf(before), what);
  t.deepEqual(now.ports, before.ports, what);
  t.is((await execIn(rig.client, before.name, "echo", "here")).output, "here\n", what);
  await rig.lab.host.ping(addressOf(now), 1);
}

for (const what of [
  ...(complete ? ["one bit of the log is flipped"] : []),
  "an older state is put in its place",
  "all of the state is gone, its copy too",
])
  test.serial(`${what}: podnetd state adopt takes the machines back as they run`, async (t) => {
    await rig.daemon.kill();
    const older = join(rig.directory, "older.db");
    damages[what]?.(older);
    const shown = await podnetdSays("state");
    t.is(shown.code, 0, shown.said);
    for (const { name, id, vm } of pods)
      t.true(shown.said.includes(`${name} (${id}), pid ${vm?.pid}, `), shown.said);
    const adopted = await podnetdSays("state", "adopt");
    t.is(adopted.code, 0, adopted.said);
    allLive(t, what);
    await rig.restart("kill");
    for (const pod of pods) await isBack(t, pod, what);
    const { networks } = await rig.client.networks.list({});
    t.is(networks[0]?.subnets[0]?.used, "3", "no address is given twice");
  });

/** Writes nonsense for a pod's plan while podnetd is away. */
function damagePlan(name: string): void {
  using db = new DatabaseSync(stateFile());
  db.prepare("UPDATE pods SET plan = '{}' WHERE name = ?").run(name);
}

test.serial(
  "a pod whose record is damaged is refused alone: its machine runs on, and podnetd state adopt takes it back",
  async (t) => {
    const [first, second] = pods as readonly [Pod, Pod];
    await rig.daemon.kill();
    damagePlan("two");
    await rig.restart("kill");
    const shown = (await rig.client.pods.list({})).pods;
    t.deepEqual(
      // (They were created at the same time, in any order.)
      shown
        .map(({ name, state }): [string, PodState] => [name, state])
        .toSorted(([one], [other]) => one.localeCompare(other)),
      [
        ["one", PodState.RUNNING],
        ["three", PodState.RUNNING],
        ["two", PodState.FAILED],
      ],
    );
    t.regex((await get("two")).reason, /record of pod "two" is damaged: plan has no version/);
    await t.throwsAsync(rig.client.pods.stop({ idOrName: "two" }), { code: "STATE_CORRUPT" });
    allLive(t, "a damaged record");
    await isBack(t, first, "another pod");
    await rig.daemon.kill();
    const adopted = await podnetdSays("state", "adopt");
    t.is(adopted.code, 0, adopted.said);
    await rig.restart("kill");
    await isBack(t, second, "adopted");
  },
);

test.serial("a delete by force ends the machine of a pod whose record is damaged", async (t) => {
  const before = await rig.inventory();
  for (const kept of [true, false]) {
    const { id, vm } = await create(rig.client, "nonsense");
    await rig.daemon.kill();
    damagePlan("nonsense");
    if (!kept) rmSync(join(rig.directory, "run", "plans", `${id}.json`));
    await rig.restart("kill");
    t.true(lives(vm?.pid ?? 0), "it runs until then");
    await rig.client.pods.delete({ idOrName: "nonsense", force: true });
    t.false(lives(vm?.pid ?? 0));
    // podnetd is another process by now, with sockets of its own.
    const changes = (await rig.changes(before)).filter((line) => !/socket|pipe/.test(line));
    t.deepEqual(changes, []);
  }
  const { networks } = await rig.client.networks.list({});
  t.is(networks[0]?.subnets[0]?.used, "3", "its addresses are given back");
});

test.serial("podnetd state is refused while podnetd runs, and remove asks for --yes", async (t) => {
  const running = await podnetdSays("state", "adopt");
  t.regex(running.said, /ALREADY_RUNNING/);
  await rig.daemon.kill();
  const unsure = await podnetdSays("state", "remove");
  t.regex(unsure.said, /Use --yes/);
  allLive(t, "remove without --yes");
  await rig.restart("kill");
});

test.serial("podnetd state remove ends the machines that the state does not know", async (t) => {
  await rig.daemon.kill();
  for (const part of ["", "-wal", "-shm", "-mark", "-copy"])
    rmSync(stateFile(part), { force: true });
  const { code, said } = await podnetdSays("state", "remove", "--yes");
  t.is(code, 0, said);
  for (const { name, vm } of pods) {
    t.regex(said, new RegExp(`removed  ${name} .*pid ${vm?.pid}`));
    t.false(lives(vm?.pid ?? 0), name);
  }
  await rig.restart("kill");
  t.deepEqual((await rig.client.pods.list({})).pods, []);
  await rig.restart("stop");
});
