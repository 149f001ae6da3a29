import test, { type ExecutionContext } from "ava";
import { InterfaceState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await joinRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const reach = async (t: ExecutionContext, addresses: readonly string[]): Promise<void> => {
  for (const address of addresses)
    t.true(await rig.lab.host.reaches(address.replace(/\/.*/, "")), address);
};

test.serial(
  "a VM has twenty-four NICs, each of which works, and takes no twenty-fifth",
  async (t) => {
    const { client } = rig;
    const before = await rig.inventory();
    await client.pods.create({ spec: { name: "many" } });
    for (let n = 1; n < 24; n++)
      await client.pods.addInterface({ idOrName: "many", interface: {} });
    const { pod } = await client.pods.get({ idOrName: "many" });
    t.is(pod?.interfaces.length, 24);
    t.true(pod?.interfaces.every(({ state }) => state === InterfaceState.CONFIGURED));
    t.like(await t.throwsAsync(client.pods.addInterface({ idOrName: "many", interface: {} })), {
      code: "INVALID_ARGUMENT",
    });
    await reach(t, pod?.interfaces.flatMap(({ addresses }) => addresses) ?? []);
    const { ok, checks } = await client.pods.verify({ idOrName: "many" });
    t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
    await rig.restart("stop");
    for (const { guestName } of pod?.interfaces.slice(1) ?? [])
      await rig.client.pods.removeInterface({ idOrName: "many", guestName });
    t.is((await execIn(rig.client, "many", "ls", "/sys/class/net")).output.trim(), "eth0\nlo");
    await rig.client.pods.delete({ idOrName: "many" });
    t.deepEqual(await rig.changes(before), []);
  },
);
