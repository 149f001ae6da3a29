import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { InterfaceState, type Pod, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { runInGuest } from "../../cli/copy/in-guest.ts";
import { copyToPod } from "../../cli/copy/to-pod.ts";
import { until } from "../lab/until.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";

// podnet's agent is a hyperstart too: here it is spoken to as one, in a real guest. What the real
// one is known to do otherwise is in test/peers/hyperstart.ts.

let rig: Rig;
let pod: Pod;
test.serial.before(async () => {
  rig = await openRig("quarantine_s = 0\n");
  const subnets = [{ cidr: "10.5.0.0/24" }, { cidr: "fd05::/64" }];
  await rig.client.networks.create({ spec: { name: "both", subnets } });
  const made = await rig.client.pods.create({
    spec: { name: "old", boot: { agent: "hyperstart" }, interfaces: [{ network: "both" }] },
  });
  pod = made.pod as Pod;
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const inGuest = async (...words: readonly string[]): Promise<string> =>
  (await execIn(rig.client, "old", ...words)).output;
const now = async (): Promise<Pod> => (await rig.client.pods.get({ idOrName: "old" })).pod as Pod;
/** Its routes but those of its own addresses. */
const routes = async (): Promise<string[]> =>
  (await inGuest("ip", "route")).split("\n").filter((line) => line.includes(" via "));
const bare = (address: string | undefined): string => address?.replace(/\/.*/, "") ?? "";

test.serial("a guest that is to be a hyperstart is spoken to as one, and configured", async (t) => {
  t.like(pod.guest, { kind: "hyperstart", agent: "", extension: 0, api: 4244 });
  t.true(pod.guest?.cannot.some((what) => what.startsWith("IPv6")));
  t.deepEqual(pod.interfaces[0]?.addresses, ["10.5.0.2/24"]);
  t.is(pod.interfaces[0]?.state, InterfaceState.CONFIGURED);
  t.is(pod.vm?.memoryMib, 128);
  await rig.lab.host.ping(addressOf(pod), 2);
  const gateway = await execIn(rig.client, "old", "ping", "-c", "1", "-W", "5", "10.5.0.1");
  t.is(gateway.code, 0, gateway.output);
  const { ok, checks } = await rig.client.pods.verify({ idOrName: "old" });
  t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
  await t.throwsAsync(
    rig.client.pods.create({
      spec: {
        boot: { agent: "hyperstart" },
        interfaces: [{ network: "both", addresses: ["10.5.0.9", "fd05::9"] }],
      },
    }),
    { code: "UNSUPPORTED" },
  );
});

test.serial(
  "an interface is added, changed and removed, each read back, with all routes",
  async (t) => {
    const { client } = rig;
    const added = await client.pods.addInterface({ idOrName: "old", interface: {} });
    const eth1 = added.pod?.interfaces[1];
    t.is(eth1?.state, InterfaceState.CONFIGURED);
    t.true(await rig.lab.host.reaches(bare(eth1?.addresses[0])));
    const changed = await client.pods.updateInterface({
      idOrName: "old",
      guestName: "eth0",
      mtu: 1300,
      addresses: { addresses: ["10.5.0.77", "10.5.0.78"] },
      routes: { routes: [{ destination: "172.21.0.0/16", gateway: "10.5.0.1" }] },
    });
    t.deepEqual(changed.pod?.interfaces[0]?.observedAddresses, ["10.5.0.77/24", "10.5.0.78/24"]);
    t.is(changed.pod?.interfaces[0]?.observedMtu, 1300);
    t.true(await rig.lab.host.reaches("10.5.0.78"));
    t.false(await rig.lab.host.reaches("10.5.0.2"), "what it had before it has no more");
    // A change takes the link down, and its routes: all are there again.
    t.deepEqual(
      new Set((await routes()).map((line) => line.trim().replace(/\s+/g, " "))),
      new Set(["default via 10.5.0.1 dev eth0", "172.21.0.0/16 via 10.5.0.1 dev eth0"]),
    );
    await client.pods.updateInterface({ idOrName: "old", guestName: "eth0", gateway: "" });
    t.false(
      (await routes()).some((line) => line.startsWith("default")),
      "taken away",
    );
    t.is((await routes()).length, 1);
    const removed = await client.pods.removeInterface({ idOrName: "old", guestName: "eth1" });
    t.is(removed.pod?.interfaces.length, 1);
    t.false(/eth1/.test(await inGuest("ip", "addr")));
    const refused = { idOrName: "old", guestName: "eth0" };
    for (const [field, change] of [
      ["metric", client.pods.updateInterface({ ...refused, metric: 5 })],
      [
        "addresses[0]",
        client.pods.updateInterface({ ...refused, addresses: { addresses: ["fd05::9"] } }),
      ],
    ] as const)
      t.like(await t.throwsAsync(change, { code: "UNSUPPORTED" }), { field });
  },
);

test.serial(
  "input beyond what a pipe holds is refused, and a copy of more than that arrives whole",
  async (t) => {
    // Three blocks of 48 KiB; test/unit/cli/copy-hyperstart.test.ts has five.
    const data = Buffer.from(Uint8Array.from({ length: 110_000 }, (_, i) => (i * 7) & 255));
    const source = path.join(rig.directory, "big");
    writeFileSync(source, data);
    const signal = new AbortController().signal;
    const guest = { podnet: rig.client, idOrName: "old", signal };
    const reads = ["sh", "-c", "sleep 2; cat > /tmp/part"];
    const input = async function* (bytes: Uint8Array) {
      yield bytes;
    };
    await t.throwsAsync(
      runInGuest(guest, { args: reads, input: input(data.subarray(0, 100_000)) }),
      {
        code: "UNSUPPORTED",
      },
    );
    const fits = data.subarray(0, 57_344);
    t.like(await runInGuest(guest, { args: reads, input: input(fits) }), { code: 0 });
    const sum = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
    const inGuestSum = async (file: string): Promise<string> =>
      (await inGuest("sha256sum", file)).split(" ")[0] ?? "";
    t.is(await inGuestSum("/tmp/part"), sum(fits));
    await copyToPod(guest, { source, target: "/tmp/copy", followLinks: false });
    t.is(await inGuestSum("/tmp/copy"), sum(data));
    t.notRegex(await inGuest("ls", "-a", "/tmp"), /podnet-cp/);
  },
);

test.serial(
  "what a guest lost while podnetd was away it has again; pause, stop and start",
  async (t) => {
    await rig.client.pods.updateInterface({
      idOrName: "old",
      guestName: "eth0",
      gateway: "10.5.0.1",
    });
    await inGuest("ip", "address", "flush", "dev", "eth0", "scope", "global");
    t.false(await rig.lab.host.reaches("10.5.0.77"), "control: it has lost them");
    await rig.restart("kill");
    await until("its address to answer", () => rig.lab.host.reaches("10.5.0.77"));
    t.true(await rig.lab.host.reaches("10.5.0.78"));
    await until("its routes, which follow", async () => (await routes()).length === 2);
    t.like((await now()).guest, { kind: "hyperstart", extension: 0 });
    await rig.client.pods.pause({ idOrName: "old" });
    await delay(6000);
    await rig.client.pods.resume({ idOrName: "old" });
    t.is((await inGuest("echo", "on")).trim(), "on");
    const behindS = async (): Promise<number> =>
      Math.abs(Date.now() / 1000 - Number(await inGuest("date", "+%s")));
    await until("its clock to be set after the pause", async () => (await behindS()) <= 2.5);
    await inGuest("ip", "link", "set", "lo", "down");
    await rig.restart("kill");
    const links = () => inGuest("ip", "addr");
    await until("lo to be up", async () => /lo: <LOOPBACK,UP/.test(await links()), 30_000, links);
    const { pod: stopped } = await rig.client.pods.stop({ idOrName: "old" });
    t.is(stopped?.state, PodState.STOPPED);
    const { pod: started } = await rig.client.pods.start({ idOrName: "old" });
    t.deepEqual(started?.interfaces[0]?.observedAddresses, ["10.5.0.77/24", "10.5.0.78/24"]);
    t.like(started?.guest, { kind: "hyperstart" });
    t.is((await routes()).length, 2);
    await rig.client.pods.delete({ idOrName: "old" });
    await rig.client.networks.delete({ name: "both" });
    // The tables stay that the first rule of IPv6 made.
    const left = (await rig.changes()).filter((line) => !/^\+ ip6tables-nft [*:C]/.test(line));
    t.deepEqual(left, []);
  },
);
