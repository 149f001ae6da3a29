import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { WatchPodsResponse_Kind as Kind } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
let id: string;
let address: string;

// One daemon serves this whole file, and its pods live from test to test.
test.serial.before(async () => {
  rig = await openRig("quarantine_s = 0\n");
  const { pod } = await rig.client.pods.create({ spec: { name: "one" } });
  await rig.client.pods.create({ spec: { name: "two" } });
  id = pod?.id ?? "";
  address = addressOf(pod);
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const answers = (): Promise<unknown> => rig.lab.host.ping(address, 1);
const silent = (): Promise<string> =>
  rig.lab.host.run("sh", "-c", `! ping -n -c 2 -i 0.2 -W 1 ${address}`);
const podNow = async (idOrName = "one") => (await rig.client.pods.get({ idOrName })).pod;
/** What the guest's clock lacks, milliseconds: its `date` is right to the second. */
const behindMs = async (): Promise<number> => {
  const { output } = await execIn(rig.client, "one", "date", "+%s");
  return Date.now() - 1000 * Number(output);
};
const macOnHost = async (): Promise<string> =>
  /lladdr (\S+)/.exec(await rig.lab.host.run("ip", "neigh", "show", address))?.[1] ?? "";

/** Resolves with the pod once an event shows it so. */
async function shown(idOrName: string, what: (state: PodState, reason: string) => boolean) {
  const ended = new AbortController();
  try {
    for await (const { pod, kind } of rig.client.pods.watch(
      { idOrName },
      { signal: ended.signal },
    )) {
      if (kind !== Kind.SYNCED && pod !== undefined && what(pod.state, pod.reason)) return pod;
    }
  } finally {
    ended.abort();
  }
  throw new Error("The events ended");
}

/** Another program at the machine's other monitor. */
async function otherMonitor(command: "stop" | "cont"): Promise<void> {
  using qmp = await QmpClient.open(join(rig.directory, "run/pods", id, "witness.sock"));
  await qmp.execute(command, {});
}

test.serial(
  "a pause stops a pod's traffic, and a resume lets it go on with its clock set",
  async (t) => {
    await answers();
    const mac = (await podNow())?.interfaces[0]?.mac ?? "";
    t.is(await macOnHost(), mac);
    const { pod } = await rig.client.pods.pause({ idOrName: "one" });
    t.is(pod?.state, PodState.PAUSED);
    t.is((await podNow())?.state, PodState.PAUSED);
    await silent();
    // Of the other, which runs, nothing changes.
    t.is((await execIn(rig.client, "two", "true")).code, 0);
    const { pod: again } = await rig.client.pods.pause({ idOrName: "one" });
    t.is(again?.state, PodState.PAUSED);
    await delay(3000);
    const { pod: back } = await rig.client.pods.resume({ idOrName: "one" });
    t.is(back?.state, PodState.RUNNING);
    t.is(back?.reason, "");
    await answers();
    t.is(await macOnHost(), mac);
    t.true((await behindMs()) < 2000);
    t.is((await rig.client.pods.resume({ idOrName: "one" })).pod?.state, PodState.RUNNING);
  },
);

test.serial("without a configuration a guest's clock would stay behind", async (t) => {
  t.true((await behindMs()) < 2000);
  await execIn(rig.client, "one", "date", "-s", "@1000000000");
  t.true((await behindMs()) > 100_000_000);
  await rig.client.pods.pause({ idOrName: "one" });
  await rig.client.pods.resume({ idOrName: "one" });
  t.true((await behindMs()) < 2000);
});

test.serial("what needs its guest is refused for a paused pod, with what to do", async (t) => {
  await execIn(rig.client, "one", "sh", "-c", "echo a word > /dev/console");
  await rig.client.pods.pause({ idOrName: "one" });
  const refused = {
    code: "WRONG_STATE",
    message: 'Pod "one" is paused instead of running',
  };
  for (const ask of [
    () => execIn(rig.client, "one", "true"),
    () => rig.client.pods.verify({ idOrName: "one" }),
    () => rig.client.pods.addInterface({ idOrName: "one", interface: { network: "default" } }),
    () => rig.client.pods.updateInterface({ idOrName: "one", guestName: "eth0", mtu: 1400 }),
    () => rig.client.pods.removeInterface({ idOrName: "one", guestName: "eth0" }),
  ]) {
    const error = await t.throwsAsync(ask(), refused);
    t.like(error, { hint: "Resume it: podnet resume one" });
  }
  await t.throwsAsync(rig.client.pods.start({ idOrName: "one" }), { code: "WRONG_STATE" });
  // Its console is podnetd's to show.
  let console = "";
  for await (const { data } of rig.client.pods.console({ idOrName: "one", noFollow: true }))
    console += Buffer.from(data).toString();
  t.regex(console, /a word/);
  await rig.client.pods.resume({ idOrName: "one" });
  t.is((await execIn(rig.client, "one", "true")).code, 0);
  t.true((await rig.client.pods.verify({ idOrName: "one" })).ok);
});

test.serial("a program that runs in the guest is held with it, and goes on", async (t) => {
  const script = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done";
  const running = execIn(rig.client, "one", "sh", "-c", script);
  await delay(500);
  await rig.client.pods.pause({ idOrName: "one" });
  // Longer than an agent may take for an answer, were its time to pass.
  await delay(11_000);
  await rig.client.pods.resume({ idOrName: "one" });
  t.deepEqual(await running, { output: "1\n2\n3\n4\n5\n6\n", code: 0 });
});

for (const how of ["stop", "kill"] as const)
  test.serial(
    `a podnetd that is started after a ${how} takes a paused pod over as paused`,
    async (t) => {
      const before = await podNow();
      await rig.client.pods.pause({ idOrName: "one" });
      await rig.restart(how);
      const pod = await podNow();
      t.is(pod?.state, PodState.PAUSED);
      t.is(pod?.reason, "", "no agent is lost that cannot answer");
      t.is(pod?.vm?.pid, before?.vm?.pid);
      await silent();
      t.is((await execIn(rig.client, "two", "true")).code, 0);
      await rig.client.pods.resume({ idOrName: "one" });
      await answers();
      await shown("one", (state, reason) => state === PodState.RUNNING && reason === "");
      t.is((await execIn(rig.client, "one", "true")).code, 0);
      t.true((await behindMs()) < 2000);
    },
  );

test.serial(
  "a machine stopped by another program is shown as paused, and so is its going on",
  async (t) => {
    await answers();
    const paused = shown("one", (state) => state === PodState.PAUSED);
    await otherMonitor("stop");
    t.is((await paused).reason, "something else than podnetd stopped its machine (paused)");
    await silent();
    const running = shown("one", (state, reason) => state === PodState.RUNNING && reason === "");
    await otherMonitor("cont");
    await running;
    await answers();
    t.is((await execIn(rig.client, "one", "true")).code, 0);
  },
);

test.serial(
  "one stopped while podnetd was away is found paused, and resumed by podnetd",
  async (t) => {
    await rig.daemon.stop();
    await answers();
    await otherMonitor("stop");
    await silent();
    await rig.restart("stop");
    const pod = await podNow();
    t.is(pod?.state, PodState.PAUSED);
    t.is(pod?.reason, "something else than podnetd stopped its machine (paused)");
    await rig.client.pods.resume({ idOrName: "one" });
    await answers();
  },
);

test.serial("a paused pod is deleted, and nothing of it is left", async (t) => {
  await rig.client.pods.pause({ idOrName: "two" });
  t.true((await rig.client.pods.delete({ idOrName: "two" })).existed);
  await rig.client.pods.delete({ idOrName: "one" });
  t.deepEqual(await rig.changes(), []);
});
