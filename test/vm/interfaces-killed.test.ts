import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { InterfaceState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { openRig, type Rig } from "./daemon-rig.ts";

const nameOf = (state: InterfaceState): string =>
  Object.entries(InterfaceState).find(([, value]) => value === state)?.[0] ?? `${state}`;

let rig: Rig;
let atFirst: string;
test.serial.before(async () => {
  rig = await openRig();
  await rig.client.pods.create({
    spec: { name: "web", interfaces: [{}, { address: "192.168.123.50" }] },
  });
  atFirst = await shown();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** The interfaces as the API reports them, with what the guest has. */
async function shown(): Promise<string> {
  const { pod } = await rig.client.pods.get({ idOrName: "web" });
  return (pod?.interfaces ?? [])
    .map(
      ({ guestName, state, observedAddresses, addresses, slot }) =>
        `${guestName} ${slot} ${nameOf(state)} ${addresses.join()} ${observedAddresses.join()}`,
    )
    .join("\n");
}

type Change = (on: Rig) => Promise<unknown>;
const add: Change = ({ client }) => client.pods.addInterface({ idOrName: "web", interface: {} });
const change: Change = ({ client }) =>
  client.pods.updateInterface({
    idOrName: "web",
    guestName: "eth1",
    addresses: { addresses: ["192.168.123.60"] },
  });
const remove: Change = ({ client }) =>
  client.pods.removeInterface({ idOrName: "web", guestName: "eth2" });

/**
 * podnetd is killed there, in the middle of a change without an answer, and started
 * again.
 */
async function killedAt(t: ExecutionContext, point: string, asked: Change): Promise<void> {
  await rig.restart("kill", { PODNET_FAILPOINTS: `${point}=kill` });
  await t.throwsAsync(asked(rig));
  await rig.restart("kill");
}

/** Waits until it is so; what is looked at last is what it is compared with. */
async function becomesTrue(wanted: () => Promise<boolean>): Promise<void> {
  for (let waited = 0; waited < 200 && !(await wanted()); waited++) await delay(50);
}

for (const point of [
  "commit:replan:after#1",
  "qmp:device_add:after#1",
  "commit:confirmed:before#1",
])
  test.serial(`killed at ${point} an add is undone by the next start`, async (t) => {
    await killedAt(t, point, add);
    await becomesTrue(async () => (await shown()) === atFirst);
    t.is(await shown(), atFirst);
    t.true(await rig.lab.host.reaches("192.168.123.50"));
    const { ok, checks } = await rig.client.pods.verify({ idOrName: "web" });
    t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
  });

for (const point of ["commit:confirmed:before#1"])
  test.serial(
    `killed at ${point} a change is undone by the next start, in the guest too`,
    async (t) => {
      await killedAt(t, point, change);
      await becomesTrue(() => rig.lab.host.reaches("192.168.123.50"));
      await becomesTrue(async () => (await shown()) === atFirst);
      t.is(await shown(), atFirst);
      t.true(await rig.lab.host.reaches("192.168.123.50"));
      t.false(await rig.lab.host.reaches("192.168.123.60"));
    },
  );

for (const point of ["commit:replan:after#1", "qmp:device_del:after#1"])
  test.serial(`killed at ${point} a remove is completed by the next start`, async (t) => {
    const { pod } = (await add(rig)) as Awaited<ReturnType<Rig["client"]["pods"]["addInterface"]>>;
    t.is(pod?.interfaces.length, 3);
    await killedAt(t, point, remove);
    await becomesTrue(async () => (await shown()) === atFirst);
    t.is(await shown(), atFirst);
    const { ok, checks } = await rig.client.pods.verify({ idOrName: "web" });
    t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
  });

test.serial("nothing is left of any of them", async (t) => {
  await rig.client.pods.delete({ idOrName: "web" });
  t.deepEqual(await rig.changes(), []);
});
