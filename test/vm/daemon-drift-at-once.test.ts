import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { openStandInRig } from "./standin-rig.ts";

// There is no look at rules here but with a link that has changed: what is healed is healed by that
// look.
const noLooks = "drift_s = 3600\n";
const takeRules = {
  iptables: ["iptables -t nat -F", "iptables -F"],
  nftables: ["nft flush map inet podnet everywhere4", "nft flush set inet podnet opened4"],
} as const;

for (const firewall of ["iptables", "nftables"] as const)
  test.serial(`a bridge and what is published behind it heal together: ${firewall}`, async (t) => {
    await using rig = await openStandInRig(`firewall = "${firewall}"\n${noLooks}`);
    const { host } = rig.lab;
    const ports = [{ hostIp: "0.0.0.0", hostPort: 8080, podPort: 80 }];
    await rig.client.pods.create({ spec: { name: "web", ports } });
    const drifts = async (): Promise<boolean> => (await rig.client.node.diff({})).drift;
    const seen = async (withinMs: number): Promise<boolean> => {
      const deadline = performance.now() + withinMs;
      while (performance.now() < deadline) {
        if (!(await drifts())) return false;
        await delay(100);
      }
      return true;
    };
    t.false(await drifts());
    for (const command of takeRules[firewall])
      await host.run(...(command.split(" ") as [string, ...string[]]));
    t.true(await seen(1000), "by themselves the rules are looked at in an hour");
    await host.run("ip", "link", "del", "hyper0");
    t.false(await seen(20_000), JSON.stringify((await rig.client.node.diff({})).parts));
    const { ok } = await rig.client.pods.verify({ idOrName: "web" });
    t.true(ok);
    await rig.client.pods.delete({ idOrName: "web" });
  });
