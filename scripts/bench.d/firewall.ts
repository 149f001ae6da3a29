/**
 * What publishing and unpublishing a port costs the firewall's driver, with nothing else published
 * and with 899 pods that have: nftables in this process, as both drivers do; one iptables-restore a
 * table, as the driver iptables does without libnftables; and the ancestor's way, an iptables
 * process a rule. Each in a network namespace of its own; rounds take turns, so that the machine's
 * noise falls on all of them.
 *   scripts/bench firewall [ROUNDS]
 */
import type { Cidr, Ip } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { unshareNetns } from "../../linux/namespaces/netns.ts";
import type { PodFragment } from "../../network/model/desired.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { type HostNetwork } from "../../network/bridge/host-network.ts";
import { publishedRules } from "../../network/firewall/iptables/published-rules.ts";
import type { Rule } from "../../network/firewall/iptables/rule.ts";
import { joinWords } from "../../network/firewall/iptables/save-format.ts";
import { openHostKernel } from "../../network/kernel/kernel.ts";
import { chainsAlone } from "../../test/lab/firewall-drivers.ts";
import { networkFragment, podIdOf } from "../../test/lab/network.ts";
import { lastLine, row, summarise } from "../measure.ts";

export const description = "A published port: nftables, iptables-restore, a process a rule";

const { signal } = new AbortController();
const chain = "HYPER";
/** Pods that have published a port before the one that is measured. */
const many = 899;

/** A pod without links, all of which is one published port; numbers count from 0. */
const pod = (n: number): PodFragment => ({
  kind: "pod",
  key: podIdOf(n),
  ports: [],
  published: [
    {
      protocol: "tcp",
      hostPort: 10_000 + n,
      podIp: `10.88.${n >> 8}.${n & 255}` as Ip,
      podPort: 80,
      count: 1,
      bridge: "hyper0" as IfName,
      subnet: "10.88.0.0/16" as Cidr,
    },
  ],
});
const without = (fragment: PodFragment): PodFragment => ({ ...fragment, published: [] });

/** One way of writing rules. */
interface Writer extends AsyncDisposable {
  /** Has `count` pods publish a port each, as quickly as may be. */
  fill(count: number): Promise<void>;
  publish(fragment: PodFragment): Promise<unknown>;
  unpublish(fragment: PodFragment): Promise<unknown>;
}

async function openDriver(firewall: "nftables" | "iptables"): Promise<HostNetwork> {
  unshareNetns();
  const kernel = firewall === "iptables" ? chainsAlone.kernel?.(openHostKernel()) : undefined;
  const host = openHostNetwork({ firewall, iptables: "nft", chain, ...(kernel && { kernel }) });
  await host.apply(networkFragment(), signal);
  return host;
}

async function nftables(): Promise<Writer> {
  const host = await openDriver("nftables");
  const publish = (fragment: PodFragment): Promise<unknown> => host.apply(fragment, signal);
  return {
    async fill(count) {
      for (let n = 0; n < count; n++) await publish(pod(n));
    },
    publish,
    unpublish: (fragment) => host.apply(without(fragment), signal),
    [Symbol.asyncDispose]: () => host[Symbol.asyncDispose](),
  };
}

const rulesOf = (fragment: PodFragment): Rule[] => publishedRules(fragment, chain, 4);

async function fillChains(count: number): Promise<void> {
  const rules = Array.from({ length: count }, (_, n) => rulesOf(pod(n))).flat();
  for (const [table, list] of Map.groupBy(rules, (rule) => rule.table)) {
    const lines = list.map((rule) => `-I ${rule.chain} 1 ${joinWords(rule.args)}\n`).join("");
    const stdin = `*${table}\n${lines}COMMIT\n`;
    await run(["iptables-nft-restore", "--noflush"], { stdin });
  }
}

async function restore(): Promise<Writer> {
  const host = await openDriver("iptables");
  return {
    fill: fillChains,
    publish: (fragment) => host.apply(fragment, signal),
    unpublish: (fragment) => host.apply(without(fragment), signal),
    [Symbol.asyncDispose]: () => host[Symbol.asyncDispose](),
  };
}

/** As hyperd did: a look at the chain for conflicts, then a process for each of two rules. */
async function ancestor(): Promise<Writer> {
  const host = await openDriver("iptables");
  const each = async (verb: "-I" | "-D", fragment: PodFragment): Promise<void> => {
    for (const rule of rulesOf(fragment).filter((found) => found.chain === chain))
      await run(["iptables-nft", "-t", rule.table, verb, chain, ...rule.args]);
  };
  return {
    fill: fillChains,
    async publish(fragment) {
      await run(["iptables-nft", "-t", "nat", "-S", chain]);
      await each("-I", fragment);
    },
    unpublish: (fragment) => each("-D", fragment),
    [Symbol.asyncDispose]: () => host[Symbol.asyncDispose](),
  };
}

const ways = { nftables, restore, ancestor } as const;
type Way = keyof typeof ways;
const titles: Readonly<Record<Way, string>> = {
  nftables: "nftables in process",
  restore: "iptables-restore",
  ancestor: "a process a rule (ancestor)",
};

interface Samples {
  readonly publish: number[];
  readonly unpublish: number[];
}

async function measure(way: Way, others: number, times: number, into: Samples): Promise<void> {
  await using writer = await ways[way]();
  await writer.fill(others);
  // The last one of those that are counted, once without being counted.
  for (let i = 0; i <= times; i++) {
    const fragment = pod(others + i);
    const begin = performance.now();
    await writer.publish(fragment);
    const between = performance.now();
    await writer.unpublish(fragment);
    if (i === 0) continue;
    into.publish.push(between - begin);
    into.unpublish.push(performance.now() - between);
  }
}

const noSamples = (): Samples => ({ publish: [], unpublish: [] });
const rounds = Number(process.argv[2] ?? 3);
const places = [0, many] as const;
const samples = Object.fromEntries(
  (Object.keys(ways) as Way[]).map((way) => [
    way,
    new Map(places.map((others) => [others, noSamples()])),
  ]),
) as Record<Way, Map<number, Samples>>;

for (let round = 0; round < rounds; round++)
  for (const others of places)
    for (const way of Object.keys(ways) as Way[])
      await measure(
        way,
        others,
        way === "nftables" ? 100 : 10,
        samples[way].get(others) as Samples,
      );

row("ms", "p50 1st", "p99 1st", "p50 900th", "p99 900th", "growth");
const publishMs = {} as Record<Way, number>;
const growth = {} as Record<Way, number>;
for (const way of Object.keys(ways) as Way[])
  for (const what of ["publish", "unpublish"] as const) {
    const [first, last] = places.map((others) =>
      summarise((samples[way].get(others) as Samples)[what]),
    );
    if (first === undefined || last === undefined) continue;
    const figures = [first.median, first.p99, last.median, last.p99, last.median / first.median];
    row(`${titles[way]}: ${what}`, ...figures.map((figure) => figure.toFixed(3)));
    if (what === "unpublish") continue;
    publishMs[way] = last.median;
    growth[way] = last.median / first.median;
  }
console.log(
  lastLine("firewall", {
    publish_ms: publishMs.nftables,
    publish_growth: growth.nftables,
    restore_ms: publishMs.restore,
    ancestor_ms: publishMs.ancestor,
    vs_ancestor: publishMs.ancestor / publishMs.nftables,
  }),
);
