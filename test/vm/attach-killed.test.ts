import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { addressOf, openRig, type Rig } from "./daemon-rig.ts";
import { type OthersMachine, startOthers, until, withAgent } from "./attach-rig.ts";

let rig: Rig;
let machine: OthersMachine;
let atFirst: string;
test.serial.before(async () => {
  rig = await openRig('factory = "cold"\n');
  machine = await startOthers("bridge");
  atFirst = await rig.inventory();
});
test.serial.after.always(async () => {
  await machine?.[Symbol.asyncDispose]();
  await rig?.[Symbol.asyncDispose]();
});

const idOrName = "theirs";
const attach = () => rig.client.pods.attach({ spec: { name: idOrName }, ...withAgent(machine) });

/** The next podnetd has taken everything back, and the machine runs on as at first. */
const nothingIsLeft = async (): Promise<boolean> =>
  (await rig.client.pods.list({})).pods.length === 0 && (await machine.nics()).length === 0;

for (const point of [
  "commit:claim:after#1",
  "qmp:query-cpus-fast:after#2",
  "qmp:getfd:after#1",
  "qmp:netdev_add:after#1",
  "qmp:device_add:after#1",
  "commit:running:before#1",
])
  test.serial(
    `podnetd killed at ${point} leaves nothing of an attach in the machine`,
    async (t) => {
      await rig.restart("kill", { PODNET_FAILPOINTS: `${point}=kill` });
      await t.throwsAsync(attach());
      await rig.restart("kill");
      await until(nothingIsLeft);
      t.true(machine.runs());
      t.deepEqual(await rig.changes(atFirst), []);
    },
  );

for (const point of [
  "commit:deleting:after#1",
  "qmp:device_del:after#1",
  "qmp:netdev_del:after#1",
  "commit:forget:before#1",
])
  test.serial(
    `a detach cut short by podnetd's end at ${point} is finished by the next`,
    async (t) => {
      t.is((await attach()).pod?.state, PodState.RUNNING);
      await rig.restart("kill", { PODNET_FAILPOINTS: `from:commit:deleting:before;${point}=kill` });
      await t.throwsAsync(rig.client.pods.detach({ idOrName }));
      await rig.restart("kill");
      await until(nothingIsLeft);
      t.true(machine.runs());
      t.deepEqual(await rig.changes(atFirst), []);
    },
  );

for (const point of [
  "qmp:netdev_add:before#1",
  "qmp:device_add:after#1",
  "commit:running:before#1",
])
  test.serial(
    `an attach that fails at ${point} is undone, and succeeds when asked for again`,
    async (t) => {
      await rig.restart("kill", { PODNET_FAILPOINTS: `${point}=error` });
      await t.throwsAsync(attach());
      await until(nothingIsLeft);
      t.deepEqual(await rig.changes(atFirst), []);
      const { pod } = await attach();
      await rig.lab.host.ping(addressOf(pod));
      await rig.client.pods.detach({ idOrName });
      t.true(await nothingIsLeft());
    },
  );
