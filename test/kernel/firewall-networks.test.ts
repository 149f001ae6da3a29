import test from "ava";
import type { Cidr } from "../../core/address.ts";
import { run } from "../../linux/processes/command.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  bridgeNf,
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  podAddress,
  published,
} from "../lab/firewall-site.ts";

const families = [4, 6] as const;
const web = families.map((family) => published(2, family, { hostPort: 8080, podPort: 80 }));

for (const { name, options } of driversUnderTest) {
  test.serial(
    `${name}: an isolated network's ports are reached from outside, its pods not from each other`,
    async (t) => {
      await using site = await FirewallSite.open(options);
      bridgeNf("0");
      const isolated = dualNetwork({ isolated: true });
      await site.ensure(isolated);
      for (const n of [2, 3]) await site.pod(n);
      await site.ensure(
        dualPod(2, web, { isolated: true }),
        dualPod(3, undefined, { isolated: true }),
      );
      await site.serve("pod2", "tcp", 80);
      for (const family of families) {
        const { outer, gateway } = hostAddresses[family];
        const pod = podAddress(2, family);
        t.is(await site.ask("outside", "tcp", outer, 8080), `${outsideAddress[family]} 80`);
        t.is(await site.ask("pod3", "tcp", outer, 8080), `${gateway} 80`, "by the host: published");
        t.is(await site.ask("host", "tcp", pod, 80), `${gateway} 80`, "control: it is served");
        const route = [`${pod}/${family === 4 ? 32 : 128}`, "via", gateway];
        await site.inside("pod3", "ip", "route", "add", ...route);
        const asked = await site.askInVain("pod3", "tcp", pod, 80);
        t.is(asked, "silence", "directly, by way of the gateway");
      }
    },
  );

  test.serial(
    `${name}: IPv6 leaves masqueraded, or routed as it is, and then nothing new comes in either`,
    async (t) => {
      await using site = await FirewallSite.open(options, {
        prepare: async () => {
          for (const command of ["iptables", "ip6tables"])
            await run([
              `${command}-${name.includes("legacy") ? "legacy" : "nft"}`,
              "-P",
              "FORWARD",
              "ACCEPT",
            ]);
        },
      });
      await site.ensure(dualNetwork());
      for (const n of [2, 3]) {
        await site.pod(n);
        await site.ensure(dualPod(n));
      }
      await site.serve("outside", "tcp", 7000);
      await site.serve("pod2", "tcp", 80);
      const [pod, outside] = [podAddress(2, 6), outsideAddress[6]];
      t.is(await site.ask("pod2", "tcp", outside, 7000), `${hostAddresses[6].outer} 7000`);
      t.is(
        await site.ask("pod2", "tcp", outsideAddress[4], 7000),
        `${hostAddresses[4].outer} 7000`,
      );
      await site.ensure(dualNetwork({ masquerade: ["192.168.123.0/24" as Cidr] }));
      t.is(await site.ask("pod2", "tcp", outside, 7000), `${pod} 7000`, "routed");
      t.is(await site.ask("pod3", "tcp", pod, 80), `${podAddress(3, 6)} 80`, "control: served");
      t.is(await site.askInVain("outside", "tcp", pod, 80), "silence");
    },
  );

  test.serial(
    `${name}: neighbours find each other by IPv6 though frames pass rules that drop`,
    async (t) => {
      await using site = await FirewallSite.open(options);
      bridgeNf("1");
      const variant = name.includes("legacy") ? "legacy" : "nft";
      // What a table of others' drops is dropped, whatever one of podnet's own says.
      const sameTable = name.startsWith("iptables");
      if (sameTable) await run([`ip6tables-${variant}`, "-P", "FORWARD", "DROP"]);
      await site.ensure(dualNetwork());
      for (const n of [2, 3]) {
        await site.pod(n);
        await site.ensure(dualPod(n));
      }
      await site.serve("pod2", "tcp", 80);
      await site.serve("outside", "tcp", 7000);
      t.is(await site.ask("pod3", "tcp", podAddress(2, 6), 80), `${podAddress(3, 6)} 80`);
      t.is(await site.ask("host", "tcp", podAddress(2, 6), 80), `${hostAddresses[6].gateway} 80`);
      t.is(
        await site.ask("pod3", "tcp", outsideAddress[6], 7000),
        `${hostAddresses[6].outer} 7000`,
      );
      if (sameTable) await run([`ip6tables-${variant}`, "-F"]);
      else await run(["ip6tables-nft", "-P", "FORWARD", "DROP"]);
      const asked = await site.askInVain("pod3", "tcp", podAddress(2, 6), 80);
      t.is(asked, "silence", "control: frames do pass rules");
    },
  );

  test.serial(`${name}: SCTP is translated like the others`, async (t) => {
    await using site = await FirewallSite.open(options);
    await site.ensure(dualNetwork());
    await site.pod(2);
    const ports = families.map((family) =>
      published(2, family, { hostPort: 9000, podPort: 5000, protocol: "sctp", count: 2 }),
    );
    await site.ensure(dualPod(2, ports));
    for (const family of families) {
      const { outer } = hostAddresses[family];
      const pod = podAddress(2, family);
      t.is(
        await site.sctp("outside", "pod2", [outer, 9002], [pod, 5000], [outer, 9001]),
        `${outsideAddress[family]} 5001`,
        "neither beyond the range nor directly, but this one",
      );
    }
  });
}
