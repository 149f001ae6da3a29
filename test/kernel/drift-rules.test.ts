import test from "ava";
import { systemClock } from "../../core/clock.ts";
import type { Ip } from "../../core/address.ts";
import type { IfName, PodId, PodName } from "../../core/names.ts";
import { DriftWatch } from "../../daemon/drift/drift.ts";
import type { RunningPort } from "../../daemon/drift/parts.ts";
import { run } from "../../linux/processes/command.ts";
import { openLog } from "../../linux/log.ts";
import type { PodFragment } from "../../network/model/desired.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { type HostNetwork } from "../../network/bridge/host-network.ts";
import { openHostKernel } from "../../network/kernel/kernel.ts";
import { podRuleMark } from "../../network/model/ownership.ts";
import { chainsAlone, type DriverUnderTest, driversUnderTest } from "../lab/firewall-drivers.ts";
import { ownNetns } from "../lab/netns.ts";
import { networkFragment, podIdOf, publishedPort } from "../lab/network.ts";
import { noContainers } from "../lab/no-containers.ts";
import { noPods } from "../lab/no-pods.ts";
import { noServices } from "../lab/no-services.ts";
import { until } from "../lab/until.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
const { signal } = new AbortController();
const count = full ? 900 : 48;
const network = networkFragment();

/** Pods with a published port each. What is looked at is their rules: they have no links. */
const pods = Array.from({ length: count }, (_, n): PodFragment => {
  const podIp = `192.168.123.${2 + (n % 250)}` as Ip;
  const published = [publishedPort({ hostPort: 10_000 + n, podPort: 1000 + n, podIp })];
  return { kind: "pod", key: podIdOf(n), ports: [], published };
});
const taps = pods.map(
  ({ key }, n): RunningPort => ({
    podId: key as PodId,
    podName: key as PodName,
    tap: `tap${n}` as IfName,
    hasRules: true,
  }),
);

test.before(ownNetns);

/** Where a driver has published ports. */
const tableOf = ({ options }: DriverUnderTest): string =>
  options.firewall === "nftables" ? "podnet" : "podnet_published";

/** The line that translates a pod's port; empty when there is none. */
async function ruleOf(driver: DriverUnderTest, { published }: PodFragment): Promise<string> {
  const port = published?.[0]?.hostPort;
  const inChains = driver === chainsAlone;
  const { stdout } = await run(
    inChains
      ? ["iptables-nft-save", "-t", "nat"]
      : ["nft", "list", "map", "inet", tableOf(driver), "everywhere4"],
  );
  const words = inChains ? `--dport ${port} ` : `tcp . ${port} `;
  return stdout.split(/[\n,]/).find((line) => line.includes(words)) ?? "";
}

/** Takes one rule of a pod's away, as another program would. */
async function takeRule(driver: DriverUnderTest, pod: PodFragment): Promise<void> {
  if (driver !== chainsAlone) {
    const key = `{ 6 . ${pod.published?.[0]?.hostPort} }`;
    await run(["nft", "delete", "element", "inet", tableOf(driver), "everywhere4", key]);
    return;
  }
  const rule = await ruleOf(driver, pod);
  const words = rule.replaceAll('"', "").replace(/^-A/, "-D").split(" ");
  await run(["iptables-nft", "-w", "-t", "nat", ...words]);
}

/** A watch over these rules, which looks often; `looks` counts, and `reported` has the repairs. */
function watched(host: HostNetwork) {
  const seen = { looks: 0, reported: [] as string[] };
  const watch = DriftWatch.open({
    services: noServices,
    attachments: { ready: noContainers },
    networks: {
      fragments: () => [network],
      stableFragment: () => network,
      answerNames: async () => {},
    },
    everyMs: 100,
    clock: systemClock,
    log: openLog({ component: "test", level: "silent" }),
    metrics: { drift: () => {} },
    journal: {
      emit: ({ data }: { data: { text: string } }) => seen.reported.push(data.text),
    } as never,
    records: {} as never,
    pods: {
      ...noPods,
      runningPorts: () => taps,
      portNow: ({ podId }) => pods.find(({ key }) => key === podId),
      rulesNow: ({ podId }) => pods.find(({ key }) => key === podId),
    },
    network: {
      inspect: (...args) => host.inspect(...args),
      inspectRules: (...args) => host.inspectRules(...args),
      observe: {
        ...host.observe,
        async fingerprint(...args) {
          seen.looks++;
          return await host.observe.fingerprint(...args);
        },
      },
    },
  });
  return { seen, watch };
}

for (const driver of [...driversUnderTest, chainsAlone])
  test.serial(
    `one rule of ${count} pods is back after the next look: ${driver.name}`,
    async (t) => {
      t.timeout(300_000);
      await using host = openHostNetwork({
        chain: "HYPER",
        hostSeed: "test",
        ...driver.options,
        ...(driver.kernel && { kernel: driver.kernel(openHostKernel()) }),
      });
      await host.apply(network, signal);
      const begun = performance.now();
      const missing = await host.inspectRules(
        () => pods,
        () => true,
        signal,
      );
      t.log(`all of them made: ${Math.round(performance.now() - begun)} ms`);
      t.is(missing.size, count);
      const { seen, watch } = watched(host);
      await using _watch = watch;
      await until("six looks", () => seen.looks >= 6, 120_000);
      const [first, last] = [pods[0], pods.at(-1)] as [PodFragment, PodFragment];
      for (const pod of [last, first]) {
        seen.reported.length = 0;
        await takeRule(driver, pod);
        const { looks } = seen;
        const taken = performance.now();
        await until("the rule", () => seen.reported.length > 0, 60_000);
        t.log(`back: ${Math.round(performance.now() - taken)} ms, ${seen.looks - looks} looks`);
        t.true(seen.looks - looks <= 2, `after ${seen.looks - looks} looks`);
        t.true((await ruleOf(driver, pod)).includes(podRuleMark(pod.key)));
      }
      await host.remove({ kind: "everything" }, signal);
    },
  );
