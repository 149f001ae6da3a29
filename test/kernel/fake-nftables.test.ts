import test from "ava";
import { type Cidr, type Ip, type IpPrefix, macFromRandom } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { openNftables } from "../../linux/nftables/libnftables.ts";
import { openGenerationCounter } from "../../linux/nftables/nftables-generation.ts";
import { changesText } from "../../network/bridge/change-text.ts";
import type {
  NetworkFragment,
  PodFragment,
  PublishedDesired,
} from "../../network/model/desired.ts";
import { Memory } from "../../network/kernel/memory.ts";
import { NftablesDriver } from "../../network/firewall/nftables/driver.ts";
import { parseListing } from "../../network/firewall/nftables/listing.ts";
import { RuleTable } from "../../network/firewall/nftables/rule-table.ts";
import { networkFragment, podIdOf } from "../lab/network.ts";
import { ownNetns } from "../lab/netns.ts";
import { kernelDoor, openDoor } from "../sim/kernel/door.ts";
import { FakeKernel } from "../sim/kernel/kernel.ts";
import { Random } from "../sim/random.ts";

const { signal } = new AbortController();

const networks: readonly NetworkFragment[] = [
  networkFragment(),
  networkFragment({
    key: "blue",
    bridge: "blue0" as IfName,
    isolated: true,
    gateways: ["10.88.0.1/16" as IpPrefix, "fd00:88::1/64" as IpPrefix],
    masquerade: ["10.88.0.0/16" as Cidr, "fd00:88::/64" as Cidr],
  }),
];

/** A pod with ports drawn from few, so that pods want the same. */
const drawn = (random: Random): PodFragment => {
  const n = 1 + random.below(3);
  const port = (): PublishedDesired => {
    const six = random.chance(0.3);
    return {
      protocol: random.pick(["tcp", "udp", "sctp"] as const),
      hostPort: 8000 + random.below(4),
      podIp: (six ? `fd00:88::${n + 1}` : `10.88.0.${n + 1}`) as Ip,
      podPort: 80 + random.below(2),
      count: 1 + random.below(2),
      bridge: "blue0" as IfName,
      subnet: (six ? "fd00:88::/64" : "10.88.0.0/16") as Cidr,
    };
  };
  const published = Array.from({ length: random.below(4) }, port);
  return { kind: "pod", key: podIdOf(n), ports: [], published };
};

test("the driver does the same to the fake nftables and to the kernel's", async (t) => {
  await ownNetns();
  const seed = 7;
  const random = new Random(seed);
  const fake = new FakeKernel(() => macFromRandom(new Uint8Array(6)));
  const fakeSource = kernelDoor(fake, openDoor, "fake").nftables;
  const real = openNftables();
  t.teardown(() => real.close());
  const sources = [fakeSource, { open: openNftables, openCounter: openGenerationCounter }];
  const sides = sources.map((source) => {
    const memory = new Memory("here");
    const table = new RuleTable(source, memory);
    t.teardown(() => table.close());
    return { table, driver: new NftablesDriver({ table, memory, configured: true }) };
  });
  const shown = async (): Promise<string[]> => {
    const listed = await Promise.all(
      [fakeSource.open(), real].map((nft) =>
        nft.list("list table", "list table inet podnet").catch(() => '{"nftables":[]}'),
      ),
    );
    return listed.map((text) => {
      const { sets, chains } = parseListing(text);
      const rules = [...chains].map(([name, { hook, rules: all }]) => [name, hook, all.length]);
      const elements = [...sets].map(([name, set]) => [
        name,
        set.type,
        set.value,
        set.interval,
        set.elements
          .map((element) => [element.key, element.owner, element.value].join(" "))
          .toSorted(),
      ]);
      return [...rules, ...elements]
        .map((each) => JSON.stringify(each))
        .toSorted()
        .join("\n");
    });
  };
  for (let step = 0; step < 150; step++) {
    const pod = drawn(random);
    const network = random.pick(networks);
    const operation = random.pick([
      "network",
      "pod",
      "pod",
      "pod",
      "remove",
      "retire",
      "harm",
    ] as const);
    const harm = random.pick([
      "delete table inet podnet",
      `delete element inet podnet everywhere4 { 6 . 8000 }`,
      "flush chain inet podnet forward",
      "add element inet podnet everywhere4 { 17 . 8001 : 10.88.0.99 . 1 }",
    ]);
    const outcomes = await Promise.all(
      sides.map(async ({ driver, table }, i) => {
        try {
          if (operation === "harm") {
            if (i === 0) fake.nftables.commit(harm);
            else await run(["nft", "-f", "-"], { stdin: harm });
            return "harmed";
          }
          const changes = await (operation === "network"
            ? driver.compareNetwork(network, signal)
            : operation === "pod"
              ? driver.comparePod(pod, signal)
              : driver.compareRemoval(
                  ({ kind, key }) =>
                    operation === "remove"
                      ? kind === "pod" && key === pod.key
                      : kind === "network" && key === network.key,
                  signal,
                ));
          for (const change of changes) if (change.kind === "nftables") await table.commit(change);
          // In whatever order they were listed.
          return changesText(changes)
            .map((line) =>
              line.replace(/\{ (.*) \}$/, (_all, list: string) =>
                list.split(", ").toSorted().join(", "),
              ),
            )
            .join("\n");
        } catch (error) {
          return operation === "harm" ? "harmed" : String((error as { code?: string }).code);
        }
      }),
    );
    t.is(outcomes[0], outcomes[1], `step ${step}, ${operation}, seed ${seed}`);
    const [fakeTable, realTable] = await shown();
    t.is(fakeTable, realTable, `after step ${step}, ${operation}, seed ${seed}`);
  }
});
