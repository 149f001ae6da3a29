import test from "ava";
import type { Ip } from "../../core/address.ts";
import { Conntrack } from "../../linux/conntrack/conntrack.ts";
import { withNetns } from "../../linux/namespaces/netns.ts";
import { labAddresses } from "../lab/lab.ts";
import { addressOf, type Rig } from "./daemon-rig.ts";
import { portsOf } from "./ports-rig.ts";
import { openStandInRig } from "./standin-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await openStandInRig('firewall = "nftables"\nquarantine_s = 0\n');
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** The host ports by which flows to an address came. */
async function cameBy(address: string): Promise<number[]> {
  await using conntrack = withNetns(rig.lab.host.path, () => new Conntrack());
  const flows = await conntrack.flows("reply", [address as Ip]);
  return flows.map(({ original }) => original.destinationPort ?? 0).toSorted((x, y) => x - y);
}

test.serial(
  "unpublishing ends the flows of that port, and stopping a pod those of all",
  async (t) => {
    const { pod } = await rig.client.pods.create({
      spec: { name: "web", ports: portsOf("0.0.0.0:8301:53/udp", "0.0.0.0:8302-8303:54-55/udp") },
    });
    const address = addressOf(pod);
    const speak = async (): Promise<void> => {
      for (const port of [8301, 8302, 8303])
        await rig.lab.lan.run("bash", "-c", `echo > /dev/udp/${labAddresses.hostOnLan}/${port}`);
    };
    await speak();
    t.deepEqual(await cameBy(address), [8301, 8302, 8303]);
    const ports = portsOf("0.0.0.0:8302-8303:54-55/udp");
    await rig.client.pods.unpublishPorts({ idOrName: "web", ports });
    t.deepEqual(await cameBy(address), [8301]);
    await speak();
    t.deepEqual([...new Set(await cameBy(address))], [8301], "no new ones begin");
    await rig.client.pods.stop({ idOrName: "web" });
    t.deepEqual(await cameBy(address), []);
  },
);

for (const action of ["error", "kill"] as const)
  test.serial(
    `an unpublish that is stopped by ${action} before flows are ended is completed`,
    async (t) => {
      const text = "0.0.0.0:8304:53/udp";
      const { pod } = await rig.client.pods.create({ spec: { name: "cut", ports: portsOf(text) } });
      const address = addressOf(pod);
      await rig.restart("stop", {
        PODNET_FAILPOINTS: `from:commit:replan:before;netlink:list flows:before#1=${action}`,
      });
      await rig.lab.lan.run("bash", "-c", `echo > /dev/udp/${labAddresses.hostOnLan}/8304`);
      t.deepEqual(await cameBy(address), [8304]);
      const unpublished = rig.client.pods.unpublishPorts({ idOrName: "cut", ports: portsOf(text) });
      await unpublished.catch(() => {});
      if (action === "kill") await rig.restart("kill");
      for (let i = 0; i < 200 && (await cameBy(address)).length > 0; i++)
        await new Promise((resolve) => setTimeout(resolve, 50));
      t.deepEqual(await cameBy(address), []);
      t.deepEqual((await rig.client.pods.get({ idOrName: "cut" })).pod?.ports, []);
      await rig.client.pods.delete({ idOrName: "cut" });
    },
  );
