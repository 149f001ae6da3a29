/**
 * What attaching a container and detaching it costs, through plugins as a runtime runs them:
 * podnet's, and Debian's bridge with host-local and portmap. On hosts without another container and
 * on hosts with 899, one after the other and eight at once; all hosts stand side by side and take
 * turns, so that the machine's noise falls on all.
 *   scripts/bench cni [ROUNDS [OTHERS]]
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import { run as runCommand } from "../../linux/processes/command.ts";
import { openLab } from "../../test/lab/lab.ts";
import { lastLine, row, summarise } from "../measure.ts";
import { type CniHost, openCniHost, type Round, type Series } from "./cni/host.ts";
import { buildRunner, openRunner } from "./cni/runner.ts";
import { podnetCni, podnetStack, referenceStack } from "./cni/stacks.ts";

/** Options of scripts/setup: Debian's bridge, host-local and portmap. */
export const setup = "--cni";
export const description = "A container's ADD and DEL by plugins; Debian's bridge and portmap";

const top = path.resolve(import.meta.dirname, "../..");
const hosts = [
  "reference",
  "podnet",
  "podnet, iptables",
  "reference, crowded",
  "podnet, crowded",
] as const;
type Name = (typeof hosts)[number];

/** At once, and how many of them in a series. */
const slots = 8;
const series = 48;
const seriesCount = 5;
/** Served before anything counts: V8 compiles what runs often, some hundred times. */
const warmingSeries = 6;
/** Rounds right after the start, which are shown and do not count. */
const freshRounds = 10;

async function open(name: Name, directory: string, runner: string): Promise<CniHost> {
  const place = path.join(directory, name.replaceAll(/\W+/g, "-"));
  mkdirSync(place);
  return openCniHost(runner, async (machine, owned) =>
    name.startsWith("reference")
      ? referenceStack(place)
      : podnetStack(place, name.endsWith("iptables") ? "iptables" : "nftables", machine, owned),
  );
}

/** The programs by themselves: milliseconds from before the start to after the end. */
async function startPrograms(runner: string, hello: string, count: number): Promise<number> {
  await using lab = await openLab("programs-");
  await using plugins = await openRunner(lab.host, runner);
  const programs = {
    "podnet-cni, VERSION": podnetCni,
    "/bin/true": "/bin/true",
    "C, static": hello,
  };
  const costs = new Map<string, { ms: number[]; cpuMs: number[] }>();
  for (let i = 0; i < count; i++)
    for (const [title, program] of Object.entries(programs)) {
      const config = { cniVersion: "1.0.0" };
      const { took } = await plugins.run(1, [
        {
          command: "VERSION",
          container: "c",
          netns: "",
          pluginPath: "/",
          plugins: [{ program, config }],
        },
      ]);
      const { ms, cpuMs } = costs.get(title) ?? { ms: [], cpuMs: [] };
      for (const each of took)
        costs.set(title, { ms: [...ms, each.ms], cpuMs: [...cpuMs, each.cpuMs] });
    }
  row(`from start to end, ${count} each, ms`, "p50", "p99", "processor");
  for (const [title, { ms, cpuMs }] of costs) {
    const cells = [summarise(ms).median, summarise(ms).p99, summarise(cpuMs).median];
    row(`  ${title}`, ...cells.map((cell) => cell.toFixed(2)));
  }
  return summarise(costs.get("podnet-cni, VERSION")?.ms ?? []).median;
}

const verbs = {
  add: "ADD",
  addPort: "ADD with a port",
  del: "DEL",
  delPort: "DEL with a port",
} as const;
type Verb = keyof typeof verbs;

/** Opens every host, has them take turns, prints the tables and returns the last line. */
export async function run(rounds: number, others: number): Promise<string> {
  // On the disk, where a daemon keeps its record, and not on the sandbox's tmpfs: a commit waits
  // for it.
  const directory = mkdtempSync(path.join(top, "build/bench-"));
  await using opened = new AsyncDisposableStack();
  opened.defer(() => rmSync(directory, { recursive: true, force: true }));
  const { runner, hello } = await buildRunner(directory);
  const pluginMs = await startPrograms(runner, hello, rounds * 5);

  const byName = new Map<Name, CniHost>();
  const fresh: Round[] = [];
  for (const name of hosts) {
    console.log(`preparing ${name}`);
    const host = opened.use(await open(name, directory, runner));
    byName.set(name, host);
    if (name === "podnet")
      for (let round = 0; round < freshRounds; round++) fresh.push(await host.round());
    // From here on as one that has served for a while.
    for (let i = 0; i < warmingSeries; i++) await host.atOnce(slots, series);
    if (name.endsWith("crowded")) await host.fill(1, others);
  }
  const measured = new Map<Name, Round[]>(hosts.map((name) => [name, []]));
  // The first turn warms up and does not count.
  for (let turn = -1; turn < rounds; turn++)
    for (const [name, host] of byName) {
      const round = await host.round();
      if (turn >= 0) measured.get(name)?.push(round);
    }
  const rates = new Map<Name, Series[]>();
  for (let turn = 0; turn < seriesCount; turn++)
    for (const name of ["reference", "podnet"] as const) {
      const rate = await byName.get(name)?.atOnce(slots, series);
      if (rate !== undefined) rates.set(name, [...(rates.get(name) ?? []), rate]);
    }
  return report(measured, fresh, rates, pluginMs, others);
}

function report(
  measured: ReadonlyMap<Name, readonly Round[]>,
  fresh: readonly Round[],
  rates: ReadonlyMap<Name, readonly Series[]>,
  pluginMs: number,
  others: number,
): string {
  const of = (name: Name, verb: Verb, what: "ms" | "cpuMs" = "ms") =>
    summarise((measured.get(name) ?? []).map((round) => round[verb][what]));
  console.log(
    `start of the plugin to its end, one after the other; crowded: with ${others} other containers`,
  );
  for (const name of hosts) {
    row(`${name}, ms`, "p50", "p99", "processor");
    for (const verb of Object.keys(verbs) as Verb[]) {
      const { median, p99 } = of(name, verb);
      const cells = [median, p99, of(name, verb, "cpuMs").median];
      row(`  ${verbs[verb]}`, ...cells.map((cell) => cell.toFixed(2)));
    }
    const gone = summarise((measured.get(name) ?? []).map(({ goneMs }) => goneMs));
    row("  DEL until the link is gone", gone.median.toFixed(2), gone.p99.toFixed(2));
  }
  row("podnet, just started, ms", "p50");
  for (const verb of Object.keys(verbs) as Verb[])
    row(`  ${verbs[verb]}`, summarise(fresh.map((round) => round[verb].ms)).median.toFixed(2));
  const rate = (name: Name, what: keyof Series): number =>
    summarise((rates.get(name) ?? []).map((each) => each[what])).median;
  row(`${slots} at once, a second`, "ADD", "DEL", "ADD, ms CPU");
  for (const name of rates.keys())
    row(`  ${name}`, rate(name, "adds"), rate(name, "dels"), rate(name, "addCpuMs"));
  const ratio = (verb: Verb, what: "ms" | "cpuMs", more = ""): number =>
    of(`reference${more}` as Name, verb, what).median /
    of(`podnet${more}` as Name, verb, what).median;
  row("reference over podnet", "time", "processor", "crowded", "processor");
  for (const verb of Object.keys(verbs) as Verb[])
    row(
      `  ${verbs[verb]}`,
      ratio(verb, "ms"),
      ratio(verb, "cpuMs"),
      ratio(verb, "ms", ", crowded"),
      ratio(verb, "cpuMs", ", crowded"),
    );
  const growth = (what: "ms" | "cpuMs"): number =>
    of("podnet, crowded", "add", what).median / of("podnet", "add", what).median;
  row("growth of podnet's ADD", growth("ms").toFixed(2), growth("cpuMs").toFixed(2));
  return lastLine("cni", {
    plugin_ms: pluginMs,
    add_ratio: ratio("add", "ms"),
    add_port_ratio: ratio("addPort", "ms"),
    del_ratio: ratio("del", "ms"),
    growth: growth("ms"),
    parallel_ratio: rate("podnet", "adds") / rate("reference", "adds"),
  });
}

if (import.meta.main) {
  await runCommand([path.join(top, "scripts/unpack-cni")]);
  console.log(await run(Number(process.argv[2] ?? 40), Number(process.argv[3] ?? 899)));
}
