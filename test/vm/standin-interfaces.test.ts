import test from "ava";
import { InterfaceState } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { Rig } from "./daemon-rig.ts";
import { create, joinStandInRig } from "./standin-rig.ts";

const nameOf = (state: InterfaceState): string =>
  Object.entries(InterfaceState).find(([, value]) => value === state)?.[0] ?? `${state}`;

let rig: Rig;
test.serial.before(async () => {
  rig = await joinStandInRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const addTo = async (name: string) => {
  const { pod } = await rig.client.pods.addInterface({ idOrName: name, interface: {} });
  const made = pod?.interfaces.at(-1);
  if (made === undefined) throw new Error("Nothing was added");
  return { ...made, address: made.addresses[0]?.replace(/\/.*/, "") ?? "" };
};
const statesOf = async (name: string): Promise<string[]> => {
  const { pod } = await rig.client.pods.get({ idOrName: name });
  return (pod?.interfaces ?? []).map((one) => `${one.guestName} ${nameOf(one.state)}`);
};

test.serial(
  "a guest that does not let go of its NIC is cut off all the same, and its slot stays taken",
  async (t) => {
    await create(rig.client, "good");
    await create(rig.client, "clings", "standin.qemu=keep-nics");
    const ours = await addTo("good");
    const theirs = await addTo("clings");
    for (const { address } of [ours, theirs]) t.true(await rig.lab.host.reaches(address));
    const good = await rig.client.pods.removeInterface({ idOrName: "good", guestName: "eth1" });
    t.is(good.pod?.interfaces.length, 1, "one that lets go has it no more");
    const { pod } = await rig.client.pods.removeInterface({
      idOrName: "clings",
      guestName: "eth1",
    });
    t.like(pod?.interfaces[1], { state: InterfaceState.UNPLUG_PENDING, slot: 2 });
    t.false(await rig.lab.host.reaches(theirs.address));
    t.is((await addTo("clings")).slot, 3);
    t.is((await addTo("good")).slot, 2);

    await rig.restart("kill");
    t.deepEqual(await statesOf("clings"), [
      "eth0 CONFIGURED",
      "eth1 UNPLUG_PENDING",
      "eth2 CONFIGURED",
    ]);
    t.like(
      await t.throwsAsync(
        rig.client.pods.removeInterface({ idOrName: "clings", guestName: "eth1" }),
      ),
      {
        code: "INTERFACE_NOT_FOUND",
      },
    );
    // What has no machine any more has let go.
    await rig.client.pods.stop({ idOrName: "clings", force: true });
    t.deepEqual(await statesOf("clings"), ["eth0 PLANNED", "eth2 PLANNED"]);
    await rig.client.pods.start({ idOrName: "clings" });
    t.deepEqual(await statesOf("clings"), ["eth0 CONFIGURED", "eth2 CONFIGURED"]);
    for (const idOrName of ["good", "clings"]) await rig.client.pods.delete({ idOrName });
    t.deepEqual(await rig.changes(), []);
  },
);

test.serial("lo gets addresses and loses them, and the pod says so", async (t) => {
  await create(rig.client, "inner");
  const { pod } = await rig.client.pods.addInterface({
    idOrName: "inner",
    interface: { loopback: true, addresses: ["10.7.0.1/32", "fd07::1/128"] },
  });
  t.like(pod?.interfaces[1], {
    guestName: "lo",
    state: InterfaceState.CONFIGURED,
    observedAddresses: ["10.7.0.1/32", "fd07::1/128"],
  });
  await rig.restart("kill");
  t.deepEqual(await statesOf("inner"), ["eth0 CONFIGURED", "lo CONFIGURED"]);
  await rig.client.pods.removeInterface({ idOrName: "inner", guestName: "lo" });
  t.deepEqual(await statesOf("inner"), ["eth0 CONFIGURED"]);
  await rig.client.pods.delete({ idOrName: "inner" });
  t.deepEqual(await rig.changes(), []);
});
