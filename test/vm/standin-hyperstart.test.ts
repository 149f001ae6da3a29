import test from "ava";
import { InterfaceState, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { addressOf, execIn, type Rig } from "./daemon-rig.ts";
import { eventually, joinStandInRig } from "./standin-rig.ts";

// The hyperstart in these machines was written from the recorded facts by someone who had not read
// podnet's codec.

let rig: Rig;
test.serial.before(async () => {
  rig = await joinStandInRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const create = (name: string, words = "", agent = "hyperstart") =>
  rig.client.pods.create({
    spec: { name, boot: { agent, cmdline: `standin.agent=hyperstart${words}` } },
  });
const bare = (address: string | undefined): string => address?.replace(/\/.*/, "") ?? "";
const routesOf = async (name: string): Promise<string> =>
  (await execIn(rig.client, name, "ip", "route")).output;

test.serial("its life: made, changed, found again, stopped and started, deleted", async (t) => {
  const { client, lab } = rig;
  const before = await rig.inventory();
  const { pod } = await create("old");
  t.like(pod?.guest, { kind: "hyperstart", extension: 0, hostname: "old" });
  t.true(await lab.host.reaches(addressOf(pod)));
  const added = await client.pods.addInterface({ idOrName: "old", interface: {} });
  t.is(added.pod?.interfaces[1]?.state, InterfaceState.CONFIGURED);
  t.true(await lab.host.reaches(bare(added.pod?.interfaces[1]?.addresses[0])));
  const { pod: set } = await client.pods.updateInterface({
    idOrName: "old",
    guestName: "eth0",
    mtu: 1300,
    addresses: { addresses: ["192.168.123.77"] },
    routes: { routes: [{ destination: "172.21.0.0/16", gateway: "192.168.123.1" }] },
  });
  t.like(set?.interfaces[0], { observedMtu: 1300, observedAddresses: ["192.168.123.77/24"] });
  t.regex(await routesOf("old"), /^default via 192\.168\.123\.1 dev eth0/m);
  t.regex(await routesOf("old"), /^172\.21\.0\.0\/16 via 192\.168\.123\.1 dev eth0/m);
  await client.pods.updateInterface({ idOrName: "old", guestName: "eth0", routes: {} });
  t.notRegex(await routesOf("old"), /172\.21/);
  await client.pods.removeInterface({ idOrName: "old", guestName: "eth1" });
  t.notRegex((await execIn(client, "old", "ip", "addr")).output, /eth1/);

  await rig.restart("kill");
  await eventually(rig.client, ({ pod: seen }) => seen?.name === "old" && seen.reason === "");
  t.is((await execIn(rig.client, "old", "echo", "on")).output, "on\n");
  t.true(await lab.host.reaches("192.168.123.77"));
  t.is((await rig.client.pods.stop({ idOrName: "old" })).pod?.state, PodState.STOPPED);
  const { pod: again } = await rig.client.pods.start({ idOrName: "old" });
  t.deepEqual(again?.interfaces[0]?.observedAddresses, ["192.168.123.77/24"]);
  await rig.client.pods.delete({ idOrName: "old" });
  t.deepEqual(await rig.changes(before), []);
});

test.serial("one that says yes and does nothing is found out, and its pod undone", async (t) => {
  const before = await rig.inventory();
  for (const [lie, found] of [
    ["startPod", /lo is down/],
    ["setupInterface", /eth0 is down; eth0 lacks 192\.168\.123\.\d+\/24/],
    ["setupRoute", /route 0\.0\.0\.0\/0 via 192\.168\.123\.1 is missing/],
  ] as const) {
    const error = await t.throwsAsync(create(`lies-${lie.toLowerCase()}`, `,lies:${lie}`), {
      code: "AGENT_REFUSED",
    });
    t.regex(error?.message ?? "", found);
  }
  t.deepEqual(await rig.changes(before), []);
});

test.serial("one that is not announced is understood, and says what it cannot do", async (t) => {
  const { pod } = await create("unasked", "", "");
  t.is(pod?.guest?.kind, "hyperstart");
  t.true((pod?.guest?.cannot.length ?? 0) > 0);
  await t.throwsAsync(
    rig.client.pods.addInterface({
      idOrName: "unasked",
      interface: { loopback: true, addresses: ["10.7.0.1/32"] },
    }),
    { code: "UNSUPPORTED" },
  );
  await rig.client.pods.delete({ idOrName: "unasked" });
});

test.serial(
  "a restart of podnetd lets a pod live whose guest has lost lo, and gives lo back",
  async (t) => {
    const { pod } = await create("no-lo");
    await execIn(rig.client, "no-lo", "ip", "link", "set", "lo", "down");
    t.notRegex((await execIn(rig.client, "no-lo", "ip", "addr")).output, /lo: <LOOPBACK,UP/);
    await rig.restart("kill");
    await eventually(rig.client, ({ pod: seen }) => seen?.name === "no-lo" && seen.reason === "");
    const links = async (): Promise<string> =>
      (await execIn(rig.client, "no-lo", "ip", "addr")).output;
    for (let look = 0; look < 100 && !(await links()).includes("lo: <LOOPBACK,UP"); look++);
    t.regex(await links(), /lo: <LOOPBACK,UP/);
    t.true(await rig.lab.host.reaches(addressOf(pod)));
    const { pod: now } = await rig.client.pods.get({ idOrName: "no-lo" });
    t.like(now, { state: PodState.RUNNING, reason: "" });
    await rig.client.pods.delete({ idOrName: "no-lo" });
  },
);

test.serial(
  "hyperstart's own image: a pod is made, gets a NIC while it runs, and outlives podnetd's death",
  async (t) => {
    const { pod } = await create("own", ",applets:few");
    t.like(pod?.guest, { kind: "hyperstart", hostname: "own" });
    t.is((await execIn(rig.client, "own", "ip", "addr")).code, 127, "control");
    t.true(await rig.lab.host.reaches(addressOf(pod)));
    const added = await rig.client.pods.addInterface({ idOrName: "own", interface: {} });
    t.is(added.pod?.interfaces[1]?.state, InterfaceState.CONFIGURED);
    t.true(await rig.lab.host.reaches(bare(added.pod?.interfaces[1]?.addresses[0])));
    await rig.restart("kill");
    await eventually(rig.client, ({ pod: seen }) => seen?.name === "own" && seen.reason === "");
    t.true(await rig.lab.host.reaches(addressOf(pod)));
    const { pod: changed } = await rig.client.pods.updateInterface({
      idOrName: "own",
      guestName: "eth0",
      mtu: 1300,
    });
    t.is(changed?.interfaces[0]?.observedMtu, 1300);
    await rig.client.pods.delete({ idOrName: "own" });
  },
);
