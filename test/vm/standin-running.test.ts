import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { addressOf, execIn, type Rig } from "./daemon-rig.ts";
import { create, openStandInRig, whenReported } from "./standin-rig.ts";

let rig: Rig;

test.serial.before(async () => {
  rig = await openStandInRig();
  await create(rig.client, "steady");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

async function othersWork(t: ExecutionContext): Promise<void> {
  const pod = await create(rig.client, "bystander");
  await rig.lab.host.ping(addressOf(pod), 1);
  for (const name of ["bystander", "steady"])
    t.deepEqual(await execIn(rig.client, name, "echo", name), { output: `${name}\n`, code: 0 });
  await rig.client.pods.delete({ idOrName: "bystander" });
}

/** An agent that goes bad after its pod runs; the pod runs on. */
const turns = (words: string, reason: RegExp): void => {
  test.serial(`a running guest with ${words}: its pod runs on, and says so`, async (t) => {
    const before = await rig.inventory();
    const pod = await create(rig.client, "turned", words);
    await whenReported(rig.client, "turned", reason);
    await othersWork(t);
    const { pod: now } = await rig.client.pods.get({ idOrName: "turned" });
    t.is(now?.state, PodState.RUNNING);
    await rig.lab.host.ping(addressOf(pod), 1);
    await rig.client.pods.delete({ idOrName: "turned", force: true });
    t.deepEqual(await rig.changes(before), []);
  });
};

turns("standin.agent=garbage-after:500", /the agent is lost/);
turns("standin.agent=huge-after:500", /the agent is lost/);
turns("standin.agent=flood:500", /the agent is lost/);
turns("standin.agent=restart:700", /configured again/);
turns("standin.agent=reset-after:500", /configured again/);

test.serial("a process asked of a guest that has stopped answering waits alone", async (t) => {
  const before = await rig.inventory();
  await create(rig.client, "wedged", "standin.agent=wedge-after:300");
  await delay(400);
  let ended = false;
  const waiting = execIn(rig.client, "wedged", "true").then(
    () => undefined,
    (error: unknown) => error,
  );
  void waiting.then(() => {
    ended = true;
  });
  await othersWork(t);
  t.false(ended);
  await rig.client.pods.delete({ idOrName: "wedged", force: true });
  t.true((await waiting) instanceof Error);
  t.deepEqual(await rig.changes(before), []);
});

test.serial("an agent that closes its channel for good leaves its pod its network", async (t) => {
  const before = await rig.inventory();
  const pod = await create(rig.client, "dead", "standin.agent=die-after:300");
  await delay(400);
  await rig.lab.host.ping(addressOf(pod), 1);
  await othersWork(t);
  await rig.client.pods.delete({ idOrName: "dead", force: true });
  t.deepEqual(await rig.changes(before), []);
});

test.serial("a guest that powers off leaves a stopped pod, which starts again", async (t) => {
  const before = await rig.inventory();
  const pod = await create(rig.client, "off", "standin.agent=poweroff-after:500");
  await whenReported(rig.client, "off", /powered off/);
  const again = await rig.client.pods.start({ idOrName: "off" });
  t.is(addressOf(again.pod), addressOf(pod));
  await rig.client.pods.delete({ idOrName: "off", force: true });
  t.deepEqual(await rig.changes(before), []);
});

for (const words of ["hangup-after", "garbage-after", "huge-after"])
  test.serial(`a monitor that does ${words} device_add is connected again`, async (t) => {
    const before = await rig.inventory();
    const pod = await create(rig.client, "monitored", `standin.qemu=${words}:device_add`);
    // Only the daemon's log reports it: the pod lacks nothing.
    const again = (): boolean =>
      rig.daemon
        .log()
        .split("\n")
        .some((line) => line.includes(pod.id) && line.includes("QMP again"));
    while (!again()) await delay(20);
    await othersWork(t);
    const { pod: now } = await rig.client.pods.get({ idOrName: "monitored" });
    t.is(now?.state, PodState.RUNNING);
    await rig.lab.host.ping(addressOf(pod), 1);
    t.is((await execIn(rig.client, "monitored", "true")).code, 0);
    await rig.client.pods.delete({ idOrName: "monitored" });
    t.deepEqual(await rig.changes(before), []);
  });

/**
 * Looks at the memory, ten a second. Long enough to distinguish a slow leak from a heap that is not
 * collected yet.
 */
const [looks, mayGrowMib] = process.env["PODNET_TEST_FULL"] === "1" ? [600, 64] : [30, 200];

const residentKib = (): number =>
  Number(
    /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${rig.daemon.process.pid}/status`, "utf8"))?.[1],
  );

test.serial("many bad pods for a while: the daemon's memory stays within bounds", async (t) => {
  t.timeout(looks * 200 + 120_000);
  const before = await rig.inventory();
  const words = [
    "standin.agent=garbage-after:100",
    "standin.agent=huge-after:100",
    "standin.agent=flood:100",
    "standin.agent=restart:50",
    "standin.qemu=huge-after:device_add",
    "standin.qemu=garbage-after:device_add",
  ];
  const atFirst = residentKib();
  const names = words.map((_, index) => `noisy-${index}`);
  await Promise.allSettled(names.map((name, i) => create(rig.client, name, words[i])));
  let most = 0;
  for (let look = 0; look < looks; look++) {
    await delay(100);
    most = Math.max(most, residentKib());
  }
  await othersWork(t);
  t.log(`${atFirst} KiB before, ${most} KiB at most`);
  t.true(most < atFirst + mayGrowMib * 1024, `${atFirst} KiB became ${most} KiB`);
  await Promise.all(names.map((idOrName) => rig.client.pods.delete({ idOrName, force: true })));
  t.deepEqual(await rig.changes(before), []);
});
