/**
 * What others on the host translate (DNAT) to containers and pods, and sources that a network
 * admits.
 */
import test from "ava";
import type { Cidr, Ip } from "../../core/address.ts";
import { run } from "../../linux/processes/command.ts";
import { changesText } from "../../network/bridge/change-text.ts";
import type { NetworkFragment, PodFragment } from "../../network/model/desired.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  bridgeNf,
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  podAddress,
} from "../lab/firewall-site.ts";

const { signal } = new AbortController();
const families = [4, 6] as const;

/** One that takes what others translate, as every container does. */
const taking = (n: number): PodFragment => ({
  ...dualPod(n, []),
  translated: families.map((family) => podAddress(n, family) as Ip),
});

/**
 * As portmap and kube-proxy do it: port 9000 + n of the host leads to pod n, with the client's
 * address (policy Local); port 9100 + n too, with the host's (policy Cluster).
 */
async function translateAsOthersDo(...pods: readonly number[]): Promise<void> {
  const rules = families.map((family) => {
    const ip = family === 4 ? "ip" : "ip6";
    const to = (n: number): string =>
      family === 4 ? `${podAddress(n, 4)}:80` : `[${podAddress(n, 6)}]:80`;
    return `table ${ip} others {
  chain translate { type nat hook prerouting priority -90;
    ${pods.map((n) => `tcp dport ${9000 + n} dnat to ${to(n)}; tcp dport ${9100 + n} ct mark set 91 dnat to ${to(n)};`).join("\n    ")}
  }
  chain hide { type nat hook postrouting priority 90; ct mark 91 masquerade; }
}`;
  });
  await run(["nft", "-f", "-"], { stdin: rules.join("\n") });
}

/** What of the network is not as wanted, and that nothing is once it was made so. */
async function remade(site: FirewallSite, network: NetworkFragment): Promise<string[]> {
  const changes = await site.host.apply(network, signal);
  const again = changesText(await site.host.diff(network, signal));
  if (again.length > 0) throw new Error(`Made, and still different: ${again.join("; ")}`);
  return changesText(changes);
}

for (const { name, options } of driversUnderTest) {
  test.serial(
    `${name}: what others translate reaches containers, and pods where their network accepts it`,
    async (t) => {
      await using site = await FirewallSite.open(options);
      await site.ensure(dualNetwork());
      for (const n of [2, 3]) {
        await site.pod(n);
        await site.serve(`pod${n}`, "tcp", 80);
      }
      await site.ensure(taking(2), dualPod(3));
      await translateAsOthersDo(2, 3);
      const asks = async (port: number): Promise<string[]> =>
        Promise.all(families.map((f) => site.ask("outside", "tcp", hostAddresses[f].outer, port)));
      const inVain = async (port: number): Promise<string[]> =>
        Promise.all(
          families.map((f) => site.askInVain("outside", "tcp", hostAddresses[f].outer, port)),
        );
      const local = families.map((family) => `${outsideAddress[family]} 80`);
      const cluster = families.map((family) => `${hostAddresses[family].gateway} 80`);
      const silence = families.map(() => "silence");
      const direct = (n: number): Promise<string[]> =>
        Promise.all(families.map((f) => site.askInVain("outside", "tcp", podAddress(n, f), 80)));

      t.deepEqual(await asks(9002), local, "a container, policy Local");
      t.deepEqual(await asks(9102), cluster, "a container, policy Cluster");
      t.deepEqual(await inVain(9003), silence, "a pod");
      t.deepEqual([await direct(2), await direct(3)], [silence, silence], "not translated");

      // Who has lost its rules gets them again, and nothing is found of those that are as they
      // should be.
      await site.host.remove({ kind: "published", of: taking(2) }, signal);
      t.deepEqual(await inVain(9002), silence, "without the rule");
      const heal = (): Promise<ReadonlyMap<unknown, unknown>> =>
        site.host.inspectRules(
          () => [taking(2)],
          () => true,
          signal,
        );
      t.is((await heal()).size, 1);
      t.is((await heal()).size, 0);
      t.deepEqual(await asks(9002), local);

      const accepting = dualNetwork({ acceptTranslated: true });
      t.not((await remade(site, accepting)).length, 0);
      t.deepEqual(await asks(9003), local, "a pod, policy Local");
      t.deepEqual(await asks(9103), cluster, "a pod, policy Cluster");
      t.deepEqual([await direct(2), await direct(3)], [silence, silence], "not translated");
      await remade(site, dualNetwork());
      t.deepEqual(await inVain(9003), silence, "refused again");
      t.deepEqual(await asks(9002), local);
      // Before the address is another's.
      await site.host.inspectRules(
        () => [{ ...taking(2), translated: [] }],
        () => true,
        signal,
      );
      t.deepEqual(await inVain(9002), silence, "gone");
    },
  );

  test.serial(`${name}: sources that a network admits reach its pods, and no others`, async (t) => {
    await using site = await FirewallSite.open(options);
    bridgeNf("0");
    const network = (admit: readonly string[], isolated = false): NetworkFragment =>
      dualNetwork({ admit: admit as readonly Cidr[], isolated });
    const admitting = ["192.0.2.0/25", "192.0.2.0/24", "2001:db8:2::/64"];
    await remade(site, network(admitting));
    for (const n of [2, 3]) await site.pod(n);
    await site.ensure(dualPod(2), dualPod(3, undefined, { isolated: true }));
    await site.serve("pod2", "tcp", 80);
    const pod = (family: 4 | 6): string => podAddress(2, family);
    for (const all of [admitting, ["0.0.0.0/0", "::/0"]]) {
      await remade(site, network(all));
      for (const family of families)
        t.is(
          await site.ask("outside", "tcp", pod(family), 80),
          `${outsideAddress[family]} 80`,
          all.join(),
        );
    }
    for (const none of [["192.0.2.128/25", "2001:db8:3::/64"], []]) {
      t.not((await remade(site, network(none))).length, 0);
      for (const family of families)
        t.is(await site.askInVain("outside", "tcp", pod(family), 80), "silence", none.join());
    }
    // Pods of an isolated network are not admitted to each other, though the sources are theirs.
    await remade(site, network(["0.0.0.0/0", "::/0"], true));
    for (const family of families) {
      const route = [`${pod(family)}/${family === 4 ? 32 : 128}`, "via"];
      await site.inside("pod3", "ip", "route", "add", ...route, hostAddresses[family].gateway);
      t.is(await site.askInVain("pod3", "tcp", pod(family), 80), "silence", "isolated");
      t.is(await site.ask("outside", "tcp", pod(family), 80), `${outsideAddress[family]} 80`);
    }
  });
}

test.serial(
  "nftables: rules of a container that go while an administrator's rule is in podnet's chain stay away",
  async (t) => {
    await using site = await FirewallSite.open({ firewall: "nftables", iptables: "auto" });
    await site.ensure(dualNetwork());
    await site.pod(2);
    await site.ensure(taking(2));
    await run(["nft", "add", "rule", "inet", "podnet", "forward", "counter"]);
    const elements = async (): Promise<string> =>
      (await run(["nft", "list", "set", "inet", "podnet", "translated4"])).stdout;
    t.regex(await elements(), new RegExp(podAddress(2, 4)));
    await site.host.inspectRules(
      () => [{ ...taking(2), translated: [] }],
      () => true,
      signal,
    );
    t.notRegex(await elements(), new RegExp(podAddress(2, 4)));
    await remade(site, dualNetwork());
    t.notRegex(await elements(), new RegExp(podAddress(2, 4)), "the repair brings nothing back");
  },
);
