import test, { type ExecutionContext } from "ava";
import { InterfaceState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

/** As many as the user of a VM that lives for months comes by; fewer in a short run. */
const cycles = process.env["PODNET_TEST_FULL"] === "1" ? 1000 : 60;

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
  `a NIC is added and removed ${cycles} times without a failure or a lost slot`,
  async (t) => {
    t.timeout(1_800_000);
    const { client } = rig;
    const before = await rig.inventory();
    await client.pods.create({ spec: { name: "churn" } });
    const slots = new Set<number>();
    for (let n = 0; n < cycles; n++) {
      const { pod } = await client.pods.addInterface({ idOrName: "churn", interface: {} });
      const [, made] = pod?.interfaces ?? [];
      t.is(made?.state, InterfaceState.CONFIGURED, `cycle ${n}`);
      slots.add(made?.slot ?? 0);
      if (n % 20 === 0) await reach(t, made?.addresses ?? []);
      const { pod: left } = await client.pods.removeInterface({
        idOrName: "churn",
        guestName: made?.guestName ?? "",
      });
      t.is(left?.interfaces.length, 1, `cycle ${n}: ${JSON.stringify(left?.interfaces[1] ?? "")}`);
    }
    t.deepEqual([...slots], [2], "always the same slot, as it is free again");
    t.is((await execIn(client, "churn", "ls", "/sys/class/net")).output.trim(), "eth0\nlo");
    await client.pods.delete({ idOrName: "churn" });
    t.deepEqual(await rig.changes(before), []);
  },
);
