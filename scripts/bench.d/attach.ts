/**
 * What podnet adds to the least that attaching a container can cost: its plugin next to a C program
 * that makes the system calls alone and waits for one durable row (cni/floor.c), and next to
 * Debian's bridge with host-local and portmap. The hosts stand side by side and take turns.
 *   scripts/bench attach [ROUNDS]
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import { run as runCommand } from "../../linux/processes/command.ts";
import { lastLine, row, summarise } from "../measure.ts";
import { type CniHost, openCniHost, type Round, type Stack } from "./cni/host.ts";
import { buildFloor, buildRunner } from "./cni/runner.ts";
import { floorStack, podnetStack, referenceStack } from "./cni/stacks.ts";

/** Options of scripts/setup: Debian's bridge, host-local and portmap. */
export const setup = "--cni";
export const description = "A container's ADD next to a C program's, and Debian's bridge, portmap";

const top = path.resolve(import.meta.dirname, "../..");
/** At once, and how many of them in a series. */
const slots = 8;
const series = 48;
const seriesCount = 5;
/** Served before anything counts: V8 compiles what runs often, some hundred times. */
const warmingSeries = 6;

interface Measured {
  readonly title: string;
  readonly host: CniHost;
  readonly rounds: Round[];
  /** Attached a second, many at once. */
  readonly rates: number[];
}

/** Measures every host, prints the table and returns the last line. */
async function run(rounds: number): Promise<string> {
  // A commit waits for the disk: the records do not stand on the sandbox's tmpfs.
  const directory = mkdtempSync(path.join(top, "build/bench-"));
  await using opened = new AsyncDisposableStack();
  opened.defer(() => rmSync(directory, { recursive: true, force: true }));
  const { runner } = await buildRunner(directory);
  const floorProgram = await buildFloor(directory);
  const place = (name: string): string => {
    const made = path.join(directory, name);
    mkdirSync(made);
    return made;
  };
  const open = async (
    title: string,
    start: (...given: Parameters<Parameters<typeof openCniHost>[1]>) => Promise<Stack>,
  ): Promise<Measured> => {
    const host = opened.use(await openCniHost(runner, start));
    for (let i = 0; i < warmingSeries; i++) await host.atOnce(slots, series);
    return { title, host, rounds: [], rates: [] };
  };
  const floor = await open("C program, one durable row", (machine) =>
    floorStack(floorProgram, machine),
  );
  const podnet = await open("podnet", (machine, owned) =>
    podnetStack(place("podnet"), "nftables", machine, owned),
  );
  const reference = await open("Debian's bridge and portmap", async () =>
    referenceStack(place("reference")),
  );
  const hosts = [floor, podnet, reference];
  // The first turn warms up and does not count.
  for (let turn = -1; turn < rounds; turn++)
    for (const { host, rounds: measured } of hosts) {
      const round = await host.round();
      if (turn >= 0) measured.push(round);
    }
  for (let turn = 0; turn < seriesCount; turn++)
    for (const { host, rates } of hosts) rates.push((await host.atOnce(slots, series)).adds);
  return report(floor, podnet, reference);
}

const verbs = { add: "ADD", addPort: "ADD with a port", del: "DEL" } as const;

function report(floor: Measured, podnet: Measured, reference: Measured): string {
  const of = ({ rounds }: Measured, verb: keyof typeof verbs) =>
    summarise(rounds.map((round) => round[verb].ms));
  const rate = ({ rates }: Measured): number => summarise(rates).median;
  row("from the plugin's start to its end, ms", "p50", "p99");
  for (const host of [floor, podnet, reference])
    for (const [verb, title] of Object.entries(verbs) as [keyof typeof verbs, string][]) {
      if (host === floor && verb === "addPort") continue;
      const { median, p99 } = of(host, verb);
      row(`  ${host.title}: ${title}`, median.toFixed(2), p99.toFixed(2));
    }
  row(`${slots} at once, ADD a second`);
  for (const host of [floor, podnet, reference]) row(`  ${host.title}`, rate(host));
  const median = (host: Measured, verb: keyof typeof verbs): number => of(host, verb).median;
  return lastLine("attach", {
    floor_ratio: median(podnet, "add") / median(floor, "add"),
    add_ratio: median(reference, "add") / median(podnet, "add"),
    add_port_ratio: median(reference, "addPort") / median(podnet, "addPort"),
    parallel_ratio: rate(podnet) / rate(reference),
    floor_parallel_ratio: rate(floor) / rate(podnet),
  });
}

await runCommand([path.join(top, "scripts/unpack-cni")]);
console.log(await run(Number(process.argv[2] ?? 40)));
