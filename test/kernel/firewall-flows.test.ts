import test from "ava";
import type { Ip } from "../../core/address.ts";
import { Conntrack } from "../../linux/conntrack/conntrack.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  podAddress,
  published,
} from "../lab/firewall-site.ts";

const { signal } = new AbortController();

for (const { name, options } of driversUnderTest)
  test.serial(
    `${name}: a flow that never pauses ends when its port is unpublished, and those of other ports go on`,
    async (t) => {
      await using site = await FirewallSite.open(options);
      await site.ensure(dualNetwork());
      for (const n of [2, 3]) await site.pod(n);
      const both = [4, 6] as const;
      const goes = both.map((family) =>
        published(2, family, { hostPort: 8080 + family, podPort: 80, protocol: "udp" }),
      );
      const stays = both.map((family) =>
        published(2, family, { hostPort: 8090 + family, podPort: 81, protocol: "udp" }),
      );
      await site.ensure(dualPod(2, [...goes, ...stays]), dualPod(3));
      await site.serve("pod2", "udp", 80, 81);
      for (const family of both) {
        const said = outsideAddress[family];
        const { outer } = hostAddresses[family];
        t.is(await site.talk("outside", outer, 8080 + family), `${said} 80`);
        t.is(await site.talk("outside", outer, 8090 + family), `${said} 81`);
      }
      await site.ensure(dualPod(2, stays));
      for (const family of both)
        t.is(
          await site.heard("outside", 8080 + family),
          `${outsideAddress[family]} 80`,
          "without its rule it goes on",
        );
      await site.host.remove(
        {
          kind: "withdrawn-connections",
          of: { ...dualPod(2, stays), withdrawn: [...goes, ...stays] },
        },
        signal,
      );
      for (const family of both) {
        t.is(await site.heard("outside", 8080 + family), "refused");
        t.is(await site.heard("outside", 8090 + family), `${outsideAddress[family]} 81`);
      }
    },
  );

test.serial(
  "a pod that is removed leaves no flow of its addresses, whoever began it",
  async (t) => {
    await using site = await FirewallSite.open({ firewall: "nftables", iptables: "auto" });
    await using conntrack = new Conntrack();
    await site.ensure(dualNetwork());
    for (const n of [2, 3]) await site.pod(n);
    const ports = [2, 3].map((n) =>
      published(n, 4, { hostPort: 8080 + n, podPort: 80, protocol: "udp" }),
    );
    await site.ensure(dualPod(2, ports.slice(0, 1)), dualPod(3, ports.slice(1)));
    await site.serve("outside", "udp", 53);
    for (const n of [2, 3]) {
      await site.serve(`pod${n}`, "udp", 80);
      t.regex(await site.talk("outside", hostAddresses[4].outer, 8080 + n), / 80$/);
      for (const family of [4, 6] as const)
        t.regex(await site.ask(`pod${n}`, "udp", outsideAddress[family], 53), / 53$/);
    }
    /** By it, by it in IPv6, and to it. */
    const flowsOf = async (n: number): Promise<readonly number[]> => {
      const four = podAddress(n, 4) as Ip;
      const began = await conntrack.flows("original", [four]);
      const began6 = await conntrack.flows("original", [podAddress(n, 6) as Ip]);
      return [began, began6, await conntrack.flows("reply", [four])].map(({ length }) => length);
    };
    t.deepEqual(await flowsOf(2), [1, 1, 1]);
    t.deepEqual(await flowsOf(3), [1, 1, 1]);
    await site.host.remove(dualPod(2, ports.slice(0, 1)), signal);
    await site.host.remove({ kind: "connections", of: [dualPod(2, ports.slice(0, 1))] }, signal);
    t.deepEqual(await flowsOf(2), [0, 0, 0]);
    t.deepEqual(await flowsOf(3), [1, 1, 1], "those of another are left alone");
    t.regex(await site.heard("outside", 8083), / 80$/);
    // Of several at once, whichever way they are looked for.
    const both = [2, 3].flatMap((n) => [podAddress(n, 4) as Ip, podAddress(n, 6) as Ip]);
    const sources = (await conntrack.flows("original", both)).map((flow) => flow.original.source);
    t.deepEqual(sources.toSorted(), both.slice(2).toSorted());
    await site.host.remove(dualPod(3, ports.slice(1)), signal);
    await site.host.remove(
      { kind: "connections", of: [2, 3].map((n, i) => dualPod(n, ports.slice(i, i + 1))) },
      signal,
    );
    t.deepEqual(await flowsOf(3), [0, 0, 0]);
  },
);
