import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import type { IpPrefix } from "../../core/address.ts";
import { run } from "../../linux/processes/command.ts";
import type { PublishedDesired } from "../../network/model/desired.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import type { IptablesPrograms } from "../../network/kernel/iptables-programs.ts";
import { openHostKernel } from "../../network/kernel/kernel.ts";
import { type HostNetwork } from "../../network/bridge/host-network.ts";
import { chainsAlone, type DriverUnderTest, driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  blueNetwork,
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  podAddress,
  published,
} from "../lab/firewall-site.ts";
import { networkFragment } from "../lab/network.ts";
import type { Asked } from "../lab/steady-asker.ts";

const { signal } = new AbortController();
const families = [4, 6] as const;
const asker = path.resolve(import.meta.dirname, "../lab/steady-asker.ts");

const ports: readonly PublishedDesired[] = families.map((family) =>
  published(2, family, { hostPort: 8080, podPort: 80, protocol: "udp" }),
);

/** Whoever asks from pod 2 without a pause begins more connections than its share. */
const network = dualNetwork({ connections: 0 });

const driver = (name: string): DriverUnderTest =>
  driversUnderTest.find((each) => each.name === name) as DriverUnderTest;

/** Asks from both sides while something is done. */
async function whileAsking(site: FirewallSite, work: () => Promise<void>): Promise<Asked[]> {
  const until = `/tmp/podnet-switch-${process.pid}`;
  rmSync(until, { force: true });
  const inward = families
    .map((family) => [
      [hostAddresses[family].outer, "8080", `${outsideAddress[family]} 80`],
      [podAddress(2, family), "80", ""],
    ])
    .flat(2);
  const outward = families.flatMap((family) => [
    outsideAddress[family],
    "7000",
    `${hostAddresses[family].outer} 7000`,
  ]);
  const asking = [
    site.inside("outside", process.execPath, asker, until, ...inward),
    site.inside("pod2", process.execPath, asker, until, ...outward),
  ];
  try {
    // Both programs have begun by then.
    await delay(1000);
    await work();
    await delay(300);
  } finally {
    writeFileSync(until, "");
  }
  return (await Promise.all(asking)).flatMap((said) => JSON.parse(said) as Asked[]);
}

/** All rules of podnet's, by where they are. */
async function whereRulesAre(): Promise<string[]> {
  const saves = ["iptables", "ip6tables"].flatMap((command) =>
    ["nft", "legacy"].map((variant) => `${command}-${variant}`),
  );
  const found: string[] = [];
  for (const name of saves)
    if (/podnet:|HYPER/.test((await run([`${name}-save`])).stdout)) found.push(name);
  const tables = (await run(["nft", "list", "tables"])).stdout;
  if (/^table inet podnet$/m.test(tables)) found.push("nftables");
  // The guard is there with either driver, and goes with the last network.
  const guards = tables.match(/^table (?:bridge podnet|inet podnet_guard)$/gm) ?? [];
  if (guards.length !== (found.length > 0 ? 2 : 0)) found.push(...guards);
  return found;
}

/** What podnetd does at its start, with the rows of before. */
async function start(
  { options, kernel }: DriverUnderTest,
  before: HostNetwork | undefined,
): Promise<HostNetwork> {
  const host = openHostNetwork({
    chain: "HYPER",
    hostSeed: "test",
    ...options,
    ...(kernel && { kernel: kernel(openHostKernel()) }),
    remembered: before?.remembered,
  });
  await host.apply({ kind: "running-pods", pods: [dualPod(2, ports)] }, signal);
  await host.apply(network, signal);
  await host.apply(dualPod(2, ports), signal);
  await host.remove(
    {
      kind: "orphans",
      known: { pods: new Set([dualPod(2).key]), networks: new Set([network.key]) },
    },
    signal,
  );
  return host;
}

const places: Readonly<Record<string, readonly string[]>> = {
  "iptables-nft": ["iptables-nft", "ip6tables-nft"],
  "iptables-legacy": ["iptables-legacy", "ip6tables-legacy"],
  nftables: ["nftables"],
};

for (const other of ["iptables-nft", "iptables-legacy"])
  test.serial(
    `between nftables and ${other} and back there is no gap, and nothing of the other stays`,
    async (t) => {
      await using site = await FirewallSite.open(driver(other).options);
      await site.ensure(network);
      await site.pod(2);
      await site.ensure(dualPod(2, ports));
      await site.serve("pod2", "udp", 80);
      await site.serve("outside", "udp", 7000);
      t.deepEqual(await whereRulesAre(), places[other]);
      let host = site.host;
      const asked = await whileAsking(site, async () => {
        for (const name of ["nftables", other, "nftables", "nftables", other, other, "nftables"]) {
          const next = await start(driver(name), host);
          if (host !== site.host) await host[Symbol.asyncDispose]();
          host = next;
          t.deepEqual(await whereRulesAre(), places[name]);
        }
      });
      for (const { times, otherwise } of asked) {
        t.true(times > 3);
        t.deepEqual(otherwise, []);
      }
      // Control: what is missing for a moment is noticed.
      const noticed = await whileAsking(site, async () => {
        await run(["nft", "delete", "table", "inet", "podnet"]);
        await host.apply(network, signal);
        await host.apply(dualPod(2, ports), signal);
      });
      t.true(noticed.some(({ otherwise }) => otherwise.length > 0));
      await host.remove({ kind: "everything" }, signal);
      await host[Symbol.asyncDispose]();
      t.deepEqual(await whereRulesAre(), []);
    },
  );

/** All rules of published ports in iptables' chains, a line each. */
async function portRules(variant: string): Promise<string[]> {
  const saves = ["iptables", "ip6tables"].map((command) => `${command}-${variant}-save`);
  const texts = await Promise.all(saves.map(async (save) => (await run([save])).stdout));
  return texts.flatMap((text) => text.match(/^-A .*podnet:pod:.*$/gm) ?? []);
}

for (const variant of ["nft", "legacy"] as const)
  test.serial(
    `from a podnet whose ports stood in the chains of iptables-${variant} there is no gap, and none stays there`,
    async (t) => {
      const current = driver(`iptables-${variant}`);
      const former: DriverUnderTest = { ...chainsAlone, options: current.options };
      await using site = await FirewallSite.open(former.options, {
        ...(chainsAlone.kernel && { kernel: chainsAlone.kernel }),
      });
      await site.ensure(network);
      await site.pod(2);
      await site.ensure(dualPod(2, ports));
      await site.serve("pod2", "udp", 80);
      await site.serve("outside", "udp", 7000);
      t.is((await portRules(variant)).length, 6);
      let host = site.host;
      const asked = await whileAsking(site, async () => {
        // (Back, too: the library may be removed.)
        const starts = [current, former, current, current];
        for (const [i, now] of starts.entries()) {
          // An earlier podnet has no rule for marks.
          if ((starts[i - 1] ?? former) === former)
            for (const command of ["iptables", "ip6tables"])
              await run(["sh", "-c", unmarking(`${command}-${variant}`)]);
          const next = await start(now, host);
          if (host !== site.host) await host[Symbol.asyncDispose]();
          host = next;
          t.is((await portRules(variant)).length, now === current ? 0 : 6);
        }
      });
      for (const { times, otherwise } of asked) {
        t.true(times > 3);
        t.deepEqual(otherwise, []);
      }
      // Rules of an old dump that another program restores are drift.
      const mark = `-m comment --comment podnet:pod:${dualPod(2).key}`;
      const rule = `-p udp --dport 9999 ${mark} -j DNAT --to-destination ${podAddress(2, 4)}:80`;
      await run([`iptables-${variant}`, "-t", "nat", "-I", "HYPER", ...rule.split(" ")]);
      const heal = async (): Promise<number> => {
        const pods = [dualPod(2, ports)];
        return (
          await host.inspectRules(
            () => pods,
            () => true,
            signal,
          )
        ).size;
      };
      t.deepEqual([await heal(), await heal()], [1, 0]);
      t.deepEqual(await portRules(variant), []);
      await host.remove({ kind: "everything" }, signal);
      await host[Symbol.asyncDispose]();
      t.deepEqual(await whereRulesAre(), []);
      t.notRegex((await run(["nft", "list", "tables"])).stdout, /podnet/);
    },
  );

/** The command that removes the rule for marks, if it is there. */
const unmarking = (program: string): string =>
  `${program}-save -t filter | sed -n 's/^-A \\(HYPER .*--mark .*\\)/-D \\1/p' | while read -r rule; do eval ${program} "$rule"; done`;

test.serial("what a lost memory does not report is taken away all the same", async (t) => {
  await using site = await FirewallSite.open(driver("nftables").options);
  await site.pod(2);
  let host = site.host;
  for (const name of ["nftables", "iptables-nft", "nftables", "iptables-nft"]) {
    host = await start(driver(name), undefined);
    t.deepEqual(await whereRulesAre(), places[name]);
  }
  await host.remove({ kind: "everything" }, signal);
  t.deepEqual(await whereRulesAre(), []);
});

for (const name of ["iptables-nft", "iptables-legacy"])
  test.serial(`${name}: IPv6 rules of a lost state go, whatever IPv4 has`, async (t) => {
    const { options } = driver(name);
    await using site = await FirewallSite.open(options);
    const alone = { ...blueNetwork(), gateways: ["fd00:88::1/64" as IpPrefix], masquerade: [] };
    await site.ensure(alone);
    t.deepEqual(await whereRulesAre(), [places[name]?.[1]]);
    // The first one has its own IPv4 rules, and ends before it sweeps.
    const four = networkFragment();
    const first = openHostNetwork({ chain: "HYPER", hostSeed: "test", ...options });
    await first.apply(four, signal);
    await first[Symbol.asyncDispose]();
    const { remembered } = first;
    const second = openHostNetwork({ chain: "HYPER", hostSeed: "test", ...options, remembered });
    const known = { pods: new Set<string>(), networks: new Set([four.key]) };
    await second.remove({ kind: "orphans", known }, signal);
    t.deepEqual(await whereRulesAre(), [places[name]?.[0]]);
    await second.remove({ kind: "everything" }, signal);
    await second[Symbol.asyncDispose]();
    t.deepEqual(await whereRulesAre(), []);
  });

test.serial(
  "with nftables no program of iptables runs where iptables-nft has no table",
  async (t) => {
    await using site = await FirewallSite.open(driver("nftables").options);
    await site.pod(2);
    let looks = 0;
    const counted = (programs: IptablesPrograms): IptablesPrograms => ({
      ...programs,
      save: (...asked) => {
        looks++;
        return programs.save(...asked);
      },
    });
    const watched: DriverUnderTest = {
      ...driver("nftables"),
      kernel: (kernel) => ({
        ...kernel,
        iptables: counted(kernel.iptables),
        ip6tables: counted(kernel.ip6tables),
      }),
    };
    const looksAtStart = async (): Promise<number> => {
      const before = looks;
      await (await start(watched, undefined))[Symbol.asyncDispose]();
      return looks - before;
    };
    t.is(await looksAtStart(), 0);
    await run(["iptables-nft", "-A", "FORWARD", "-j", "ACCEPT"]);
    t.true((await looksAtStart()) > 0);
  },
);
