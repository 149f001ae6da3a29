import test from "ava";
import { execIn, joinRig } from "./daemon-rig.ts";

test.serial(
  "NICs of a pod with two processors have two queues, which the guest uses",
  async (t) => {
    await using rig = await joinRig();
    const before = await rig.inventory();
    const spec = { name: "wide", boot: { factory: "cold" }, resources: { vcpu: 2 } };
    await rig.client.pods.create({ spec });
    await rig.client.pods.addInterface({ idOrName: "wide", interface: {} });
    const queuesOf = async (link: string): Promise<string[]> => {
      const { output } = await execIn(rig.client, "wide", "ls", `/sys/class/net/${link}/queues`);
      return output.trim().split("\n");
    };
    const two = ["rx-0", "rx-1", "tx-0", "tx-1"];
    t.deepEqual(await queuesOf("eth0"), two);
    t.deepEqual(await queuesOf("eth1"), two);
    const { pod } = await rig.client.pods.get({ idOrName: "wide" });
    for (const address of pod?.interfaces.flatMap(({ addresses }) => addresses) ?? [])
      t.true(await rig.lab.host.reaches(address.replace(/\/.*/, "")), address);
    const { ok, checks } = await rig.client.pods.verify({ idOrName: "wide" });
    t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
    // Another podnetd takes the NICs over, and unplugs one and plugs it again.
    await rig.restart("stop");
    await rig.client.pods.removeInterface({ idOrName: "wide", guestName: "eth1" });
    await rig.client.pods.addInterface({ idOrName: "wide", interface: {} });
    t.deepEqual(await queuesOf("eth1"), two);
    await rig.client.pods.delete({ idOrName: "wide", force: true });
    t.deepEqual(await rig.changes(before), []);
  },
);
