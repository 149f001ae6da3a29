/**
 * What a live change of a pod costs: a port published and unpublished, a NIC added and removed,
 * through the API, on a host with one pod and on the 900th pod of another, with both firewall
 * drivers; alongside them the ancestors' way, one iptables process for each rule. All hosts stand
 * side by side and take turns, so that the machine's noise falls on all.
 *   scripts/bench network [ROUNDS]
 */
import { mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import { lastLine, row, summarise } from "../measure.ts";
import { type AncestorHost, openAncestor } from "./network/ancestor.ts";
import { crowdSize } from "./network/crowd.ts";
import { type ChangeFigures, type NodeHost, openNodeHost } from "./network/node-host.ts";

export const description =
  "A port published, a NIC added: 1st and 900th pod, both firewall drivers";

const top = path.resolve(import.meta.dirname, "../..");
const drivers = ["nftables", "iptables"] as const;
const sizes = ["alone", "crowded"] as const;
type Size = (typeof sizes)[number];
type Name = `${(typeof drivers)[number]} ${Size}`;

/**
 * Changes a host makes before the next one has its turn: one alone would find every cache full of
 * the others'.
 */
const perTurn = 5;

const figures = ["publish", "unpublish", "add", "remove"] as const;

/** Opens every host, has them take turns, prints the table and returns the last line. */
export async function run(rounds: number): Promise<string> {
  // On the disk, where a daemon keeps its record, and not on the sandbox's tmpfs: a commit waits
  // for it.
  const directory = mkdtempSync(path.join(top, "build/bench-"));
  await using opened = new AsyncDisposableStack();
  opened.defer(() => rmSync(directory, { recursive: true, force: true }));
  const hosts = new Map<Name, NodeHost>();
  const ancestors = new Map<Size, AncestorHost>();
  for (const size of sizes) {
    const crowded = size === "crowded";
    ancestors.set(size, opened.use(await openAncestor(crowded ? crowdSize : 0)));
    for (const driver of drivers) {
      const name: Name = `${driver} ${size}`;
      console.log(`preparing ${name}`);
      const place = path.join(directory, name.replace(" ", "-"));
      hosts.set(name, opened.use(await openNodeHost({ directory: place, driver, crowded })));
    }
  }

  const changes = new Map<Name, ChangeFigures[]>([...hosts.keys()].map((name) => [name, []]));
  const rules = new Map<Size, number[]>(sizes.map((size) => [size, []]));
  // The first turn warms up and does not count.
  for (let turn = 0; turn <= rounds / perTurn; turn++) {
    for (const [name, host] of hosts) {
      for (let each = 0; each < perTurn; each++) {
        const measured = await host.change(turn * perTurn + each);
        if (turn > 0) changes.get(name)?.push(measured);
      }
    }
    for (const [size, host] of ancestors) {
      for (let each = 0; each < perTurn; each++) {
        const measured = await host.publish();
        if (turn > 0) rules.get(size)?.push(measured);
      }
    }
  }
  return report(rounds, changes, rules);
}

function report(
  rounds: number,
  changes: ReadonlyMap<Name, readonly ChangeFigures[]>,
  rules: ReadonlyMap<Size, readonly number[]>,
): string {
  const of = (name: Name, figure: (typeof figures)[number]) =>
    summarise((changes.get(name) ?? []).map((each) => each[figure]));
  const growth = (driver: (typeof drivers)[number], figure: (typeof figures)[number]): number =>
    of(`${driver} crowded`, figure).median / of(`${driver} alone`, figure).median;
  console.log(
    `${rounds} rounds; API call to answer, milliseconds; the 900th pod has ${crowdSize} synthetic ones alongside it`,
  );
  row("", "1st", "p99", "900th", "p99", "growth");
  for (const driver of drivers) {
    for (const figure of figures) {
      const [alone, crowded] = [of(`${driver} alone`, figure), of(`${driver} crowded`, figure)];
      const cells = [alone.median, alone.p99, crowded.median, crowded.p99].map((ms) =>
        ms.toFixed(2),
      );
      row(`${driver}: ${titles[figure]}`, ...cells, growth(driver, figure).toFixed(2));
    }
  }
  const [alone, crowded] = [
    summarise(rules.get("alone") ?? []),
    summarise(rules.get("crowded") ?? []),
  ];
  const cells = [alone.median, alone.p99, crowded.median, crowded.p99].map((ms) => ms.toFixed(2));
  row("one iptables process a rule: publish", ...cells, (crowded.median / alone.median).toFixed(2));
  const publish = of("nftables crowded", "publish").median;
  return lastLine("network", {
    publish_ms: publish,
    publish_growth: growth("nftables", "publish"),
    nic_add_ms: of("nftables crowded", "add").median,
    nic_growth: growth("nftables", "add"),
    iptables_publish_ms: of("iptables crowded", "publish").median,
    iptables_publish_growth: growth("iptables", "publish"),
    vs_ancestor: crowded.median / publish,
  });
}

const titles: Readonly<Record<(typeof figures)[number], string>> = {
  publish: "publish a port",
  unpublish: "unpublish it",
  add: "add a NIC",
  remove: "remove it",
};

if (import.meta.main) {
  console.log(await run(Number(process.argv[2] ?? 100)));
}
