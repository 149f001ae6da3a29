import { rmSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { InterfaceState, type Pod, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { WatchPodsResponse_Kind as Kind } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { bootId } from "../../linux/processes/proc.ts";
import { addressOf, execIn, joinRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;

test.serial.before(async () => {
  rig = await joinRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** Runs a script in the pod and waits for the event it brings about. */
async function provoke(name: string, script: string, event: RegExp): Promise<void> {
  const ended = new AbortController();
  for await (const { kind, text } of rig.client.pods.watch({ idOrName: name }, ended)) {
    if (kind === Kind.SYNCED) void execIn(rig.client, name, "sh", "-c", script).catch(() => {});
    if (event.test(text)) break;
  }
  ended.abort();
}

/** Waits until the guest's agent runs programs again. */
async function answers(name: string): Promise<void> {
  while ((await execIn(rig.client, name, "true").catch(() => undefined))?.code !== 0)
    await delay(200);
}

async function get(name: string): Promise<Pod> {
  const { pod } = await rig.client.pods.get({ idOrName: name });
  if (pod === undefined) throw new Error("No pod");
  return pod;
}

test.serial("an agent that starts anew is configured again", async (t) => {
  const { pod } = await rig.client.pods.create({ spec: { name: "one", interfaces: [{}, {}] } });
  // What the new agent has to put back.
  await execIn(rig.client, "one", "ip", "address", "flush", "dev", "eth0");
  t.false(await rig.lab.host.reaches(addressOf(pod)));
  await provoke("one", "kill -SEGV 1", /^configured again/);
  await rig.lab.host.ping(addressOf(pod), 2);
});

test.serial(
  "a guest that panics is counted, and the pod's reason has the kernel's words",
  async (t) => {
    const panicked =
      /^the guest panicked and restarted \(restart 1\): Kernel panic - not syncing: \S/;
    await provoke("one", "echo c > /proc/sysrq-trigger", panicked);
    const { reason, vm } = await get("one");
    t.regex(reason, panicked);
    t.is(vm?.guestRestarts, 1);
    await answers("one");
    // A restart without a panic after it.
    const restarted = "the guest restarted by itself (restart 2)";
    await provoke("one", "echo b > /proc/sysrq-trigger", /^the guest restarted/);
    t.is((await get("one")).reason, restarted);
    await answers("one");
    t.is((await get("one")).vm?.guestRestarts, 2);
  },
);

test.serial(
  "a NIC that its guest ejects is an event; the pod runs on, over a restart too",
  async (t) => {
    // By ACPI, as device_del would ask for: a slot's number here is QEMU's.
    await provoke("one", "echo 0 > /sys/bus/pci/slots/2/power", /let go of nic1/);
    const { vm } = await get("one");
    const rules = await savedRules();
    for (const how of ["stop", "kill"] as const) {
      const pod = await get("one");
      t.is(pod.state, PodState.RUNNING, pod.reason);
      t.is(pod.vm?.pid, vm?.pid);
      t.like(pod.interfaces[0], { state: InterfaceState.CONFIGURED });
      t.like(pod.interfaces[1], { state: InterfaceState.PLANNED, observedAddresses: [] });
      const hello = await execIn(rig.client, "one", "echo", "here");
      t.is(hello.output, "here\n");
      await rig.restart(how);
      t.is(await savedRules(), rules, "each rule exactly once, whatever the restarts");
    }
    // What it has left is configured again as before.
    await execIn(rig.client, "one", "ip", "address", "flush", "dev", "eth0");
    await provoke("one", "kill -SEGV 1", /^configured again/);
    await rig.lab.host.ping(addressOf(await get("one")), 1);
    t.true((await rig.client.pods.delete({ idOrName: "one" })).existed);
    t.notRegex(await rig.lab.host.run("ip", "-o", "link"), /pn[a-z2-7]{12}/);
  },
);

test.serial(
  "an address changes hands, and who knew its last MAC is answered at once",
  async (t) => {
    const create = async (name: string, address = ""): Promise<Pod | undefined> =>
      (await rig.client.pods.create({ spec: { name, interfaces: [{ address }] } })).pod;
    const [, first] = await Promise.all([create("two"), create("first")]);
    const ping = (): Promise<{ readonly output: string; readonly code: number }> =>
      execIn(rig.client, "two", "ping", "-c", "1", "-W", "1", addressOf(first));
    t.is((await ping()).code, 0);
    await rig.client.pods.delete({ idOrName: "first" });
    const heir = await create("three", addressOf(first));
    t.not(heir?.interfaces[0]?.mac, first?.interfaces[0]?.mac);
    const answered = await ping();
    t.is(answered.code, 0, answered.output);
    await rig.lab.host.ping(addressOf(heir), 1);
  },
);

test.serial("a restart of the host: pods are failed, keep addresses, start or go", async (t) => {
  const { host } = rig.lab;
  const pods = await Promise.all(["two", "three"].map(get));
  const rules = await savedRules();
  await rig.daemon.stop();
  await hostRestarts(pods.map(({ vm }) => vm?.pid ?? -1));
  await rig.restart("stop");
  for (const before of pods) {
    const pod = await get(before.name);
    t.is(pod.state, PodState.FAILED);
    t.is(pod.reason, "host restarted");
    t.is(pod.failure?.code, "HOST_RESTARTED");
    t.is(addressOf(pod), addressOf(before));
  }
  t.is(await savedRules(), rules);
  const { pod: started } = await rig.client.pods.start({ idOrName: "two" });
  t.is(addressOf(started), addressOf(pods[0]));
  await host.ping(addressOf(started), 1);
  const internet = await execIn(rig.client, "two", "ping", "-c", "1", "-W", "2", "203.0.113.10");
  t.is(internet.code, 0, internet.output);
  t.true((await rig.client.pods.delete({ idOrName: "three" })).existed);
  await rig.client.node.down({});
  t.is((await host.run("cat", "/proc/sys/net/ipv4/ip_forward")).trim(), "0");
});

/** The host's rules, without dates and counters. */
async function savedRules(): Promise<string> {
  const saved = await rig.lab.host.run("iptables-save");
  return saved.replaceAll(/^#.*\n/gm, "").replaceAll(/\[\d+:\d+\]/g, "");
}

/** What a restart leaves of a host: files outside of /run, and in the store another boot's id. */
async function hostRestarts(pids: readonly number[]): Promise<void> {
  const { host } = rig.lab;
  for (const pid of pids) process.kill(pid, "SIGKILL");
  await host.run("ip", "link", "delete", "dev", "hyper0");
  for (const table of ["filter", "nat"])
    for (const what of ["-F", "-X"]) await host.run("iptables", "-t", table, what);
  await host.run("sysctl", "-q", "net.ipv4.ip_forward=0");
  rmSync(rig.daemon.runDir, { recursive: true });
  const db = new DatabaseSync(join(rig.daemon.stateDir, "state.db"));
  db.exec("UPDATE runs SET boot_id = 'another'");
  db.prepare("UPDATE meta SET value = replace(value, ?, 'another')").run(bootId());
  db.close();
}
