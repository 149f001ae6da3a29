import test from "ava";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { publishedTable } from "../../network/firewall/nftables/published-table.ts";
import type { PublishedDesired } from "../../network/model/desired.ts";
import { chainsAlone, driversUnderTest, refusing } from "../lab/firewall-drivers.ts";
import {
  blueNetwork,
  bridgeNf,
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  podAddress,
  published,
} from "../lab/firewall-site.ts";

const { signal } = new AbortController();

for (const { name, options, kernel } of [...driversUnderTest, chainsAlone])
  for (const nf of name === chainsAlone.name ? (["0"] as const) : (["0", "1"] as const))
    test.serial(
      `${name}, bridge-nf ${nf}: what is published is reached from everywhere, and nothing else of the pod`,
      async (t) => {
        await using site = await FirewallSite.open(options, kernel && { kernel });
        bridgeNf(nf);
        await site.ensure(dualNetwork(), blueNetwork());
        for (const n of [2, 3]) await site.pod(n);
        await site.bluePod();
        const ports = ([4, 6] as const).flatMap((family) => [
          published(2, family, { hostPort: 8080, podPort: 80 }),
          published(2, family, { hostPort: 8080, podPort: 80, protocol: "udp" }),
          published(2, family, { hostPort: 9000, podPort: 9000, count: 3 }),
          published(2, family, { hostPort: 9100, podPort: 7000, count: 3, protocol: "udp" }),
        ]);
        await site.ensure(dualPod(2, ports), dualPod(3));
        await site.serve("pod2", "tcp", 80, 81, 9000, 9001, 9002);
        await site.serve("pod2", "udp", 80, 81, 7000, 7001, 7002);
        await site.serve("host", "tcp", 2222);
        for (const family of [4, 6] as const) {
          const { outer, gateway } = hostAddresses[family];
          const outside = outsideAddress[family];
          const pod = podAddress(2, family);
          for (const protocol of ["tcp", "udp"] as const) {
            const ask = (from: string, to: string, port = 8080): Promise<string> =>
              site.ask(from, protocol, to, port);
            t.is(
              await ask("outside", outer),
              `${outside} 80`,
              "from outside, its address preserved",
            );
            t.is(await ask("host", outer), `${outer} 80`, "the host by its outer address");
            t.is(await ask("host", gateway), `${gateway} 80`, "the host by its inner address");
            t.is(await ask("pod3", outer), `${gateway} 80`, "a neighbour");
            t.is(
              await ask("pod3", gateway),
              `${gateway} 80`,
              "a neighbour by the gateway's address",
            );
            t.is(await ask("pod2", outer), `${gateway} 80`, "the pod itself");
            t.is(await ask("blue", outer), `${gateway} 80`, "another network");
            t.is(
              await ask("pod3", pod, 81),
              `${podAddress(3, family)} 81`,
              "control: 81 is served",
            );
            t.is(await ask("outside", outer, 81), "refused", "another port of the host");
            const inVain = (from: string, port: number): Promise<string> =>
              site.askInVain(from, protocol, pod, port);
            t.deepEqual(
              await Promise.all([inVain("outside", 81), inVain("outside", 80), inVain("blue", 80)]),
              ["silence", "silence", "silence"],
              "another port of the pod; by a route to the pod; so from another network",
            );
          }
          t.is(await site.ask("outside", "tcp", outer, 2222), `${outside} 2222`, "the host's own");
          for (const i of [0, 1, 2]) {
            t.is(await site.ask("outside", "tcp", outer, 9000 + i), `${outside} ${9000 + i}`);
            t.is(await site.ask("outside", "udp", outer, 9100 + i), `${outside} ${7000 + i}`);
          }
          t.is(await site.ask("outside", "tcp", outer, 9003), "refused", "beyond the range");
        }
        t.deepEqual(await site.host.diff(dualPod(2, ports), signal), [], "a second look");
        t.deepEqual(await site.host.diff(dualNetwork(), signal), []);
      },
    );

for (const { name, options } of driversUnderTest)
  test.serial(
    `${name}: a foreign bridge that is missing keeps nothing else of the pod away`,
    async (t) => {
      await using site = await FirewallSite.open(options);
      await site.ensure(dualNetwork());
      await site.pod(2);
      const { outer } = hostAddresses[4];
      await site.serve("pod2", "tcp", 80);
      const ports = [published(2, 4, { hostPort: 8080, podPort: 80 })];
      const { ports: own, ...pod } = dualPod(2, ports);
      const elsewhere = (bridge: string) =>
        own.map((port) => ({ ...port, bridge: bridge as IfName, foreign: true as const }));
      t.is(await site.ask("outside", "tcp", outer, 8080), "refused", "control: not yet");
      const wanted = { ...pod, ports: [...elsewhere("gone0"), ...own, ...elsewhere("gone1")] };
      await t.throwsAsync(site.host.apply(wanted, signal), {
        code: "BRIDGE_CONFLICT",
        message: /"gone0"/,
      });
      t.is(await site.ask("outside", "tcp", outer, 8080), `${outsideAddress[4]} 80`);
    },
  );

for (const { name, options } of driversUnderTest)
  test.serial(
    `${name}: a port that is published alone costs no look at links, but for the first and the last`,
    async (t) => {
      await using site = await FirewallSite.open(options);
      bridgeNf("1");
      await site.ensure(dualNetwork());
      await site.pod(2);
      await site.serve("pod2", "tcp", 80, 81);
      await site.ensure(dualPod(2));
      const { outer } = hostAddresses[4];
      const [first, second] = [8080, 8081].map((hostPort, i) =>
        published(2, 4, { hostPort, podPort: 80 + i }),
      ) as [PublishedDesired, PublishedDesired];
      const change = async (
        had: readonly PublishedDesired[],
        has: readonly PublishedDesired[],
      ): Promise<string[]> => {
        const pod = dualPod(2, has);
        const changes = await site.host.apply({ kind: "published", pod, had }, signal);
        t.deepEqual(await site.host.diff(pod, signal), []);
        return changes.map(({ kind }) => kind);
      };
      t.deepEqual(await change([], [first]), ["set-port", "nftables"]);
      t.is(await site.ask("pod2", "tcp", outer, 8080), `${hostAddresses[4].gateway} 80`);
      t.deepEqual(await change([first], [first, second]), ["nftables"]);
      t.is(await site.ask("outside", "tcp", outer, 8081), `${outsideAddress[4]} 81`);
      t.deepEqual(await change([first, second], [second]), ["nftables"]);
      t.is(await site.ask("outside", "tcp", outer, 8080), "refused");
      t.deepEqual(await change([second], []), ["set-port", "nftables"]);
      t.is(await site.ask("outside", "tcp", outer, 8081), "refused");
      t.deepEqual(await change([], []), []);
    },
  );

const markers = {
  forged: "type filter hook prerouting priority -150; meta mark set meta mark or 0x2000",
  // Behind all of podnet's.
  left: "type filter hook postrouting priority 300; meta mark and 0x2000 == 0x2000 counter",
};

test.serial(
  "a packet that another program has marked as podnet does is not let in, and none leaves with the mark",
  async (t) => {
    await using site = await FirewallSite.open({ iptables: "nft" });
    await site.ensure(dualNetwork());
    await site.pod(2);
    await site.ensure(dualPod(2, [published(2, 4, { hostPort: 8080, podPort: 80 })]));
    await site.serve("pod2", "tcp", 80);
    const { outer } = hostAddresses[4];
    const marker = async (chain: keyof typeof markers): Promise<void> => {
      const [hook, rule] = markers[chain].split("; ");
      await run(["nft", "-f", "-"], {
        stdin: `table ip others { chain ${chain} { ${hook}; ${rule}; }; }\n`,
      });
    };
    await marker("left");
    t.is(await site.ask("outside", "tcp", outer, 8080), `${outsideAddress[4]} 80`);
    const left = (await run(["nft", "list", "chain", "ip", "others", "left"])).stdout;
    t.regex(left, /counter packets 0 /);
    await marker("forged");
    t.is(await site.askInVain("outside", "tcp", podAddress(2, 4), 80), "silence");
    t.is(await site.ask("outside", "tcp", outer, 8080), `${outsideAddress[4]} 80`);
    // Control: nothing else keeps it away.
    await run(["nft", "flush", "chain", "inet", "podnet_published", "arriving"]);
    t.is(await site.ask("outside", "tcp", podAddress(2, 4), 80), `${outsideAddress[4]} 80`);
  },
);

test.serial("a kernel that refuses the table of ports has them in iptables' chains", async (t) => {
  await using site = await FirewallSite.open(
    { iptables: "nft" },
    { kernel: refusing(publishedTable.name) },
  );
  await site.pod(2);
  await site.serve("pod2", "tcp", 80);
  await site.ensure(dualNetwork());
  const pod = dualPod(2, [published(2, 4, { hostPort: 8080, podPort: 80 })]);
  await site.ensure(pod);
  const { outer } = hostAddresses[4];
  t.is(await site.ask("outside", "tcp", outer, 8080), `${outsideAddress[4]} 80`);
  t.regex((await run(["iptables-nft-save"])).stdout, /--dport 8080 .*podnet:pod:.* -j DNAT/);
  t.deepEqual(site.host.observe.guardLacking, [], "nothing is lacking");
  t.deepEqual(await site.host.diff(pod, signal), []);
  await site.ensure({ ...pod, published: [] });
  t.is(await site.ask("outside", "tcp", outer, 8080), "refused");
});

test.serial(
  "a table of ports that is refused when the first port is published costs no port",
  async (t) => {
    await using site = await FirewallSite.open(
      { iptables: "nft" },
      { ...(chainsAlone.kernel && { kernel: chainsAlone.kernel }) },
    );
    await site.pod(2);
    await site.serve("pod2", "tcp", 80);
    // An earlier podnet made the network, without the table.
    await site.ensure(dualNetwork());
    await using host = FirewallSite.again(site, { iptables: "nft" }, refusing(publishedTable.name));
    await host.apply(dualPod(2, [published(2, 4, { hostPort: 8080, podPort: 80 })]), signal);
    const { outer } = hostAddresses[4];
    t.is(await site.ask("outside", "tcp", outer, 8080), `${outsideAddress[4]} 80`);
  },
);
