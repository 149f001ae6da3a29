/**
 * Where each millisecond goes: of a create by each way, of a container's ADD, of a port published
 * with each firewall driver, of a program run in a pod. podnetd writes down its own effects; the
 * tables are medians of the parts, and the plots show them.
 *   scripts/bench profile [ROUNDS [DIRECTORY]]
 * The plots and a page of tables go to DIRECTORY, build/profile unless given. Those that
 * docs/explanation/performance.md shows are in docs/explanation/profile.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import path from "node:path";
import { connectPodnet } from "../../api/client.ts";
import { openLab } from "../../test/lab/lab.ts";
import { startPodnetd } from "../../test/lab/podnetd.ts";
import { lastLine, summarise } from "../measure.ts";
import { openCniHost } from "./cni/host.ts";
import { buildRunner } from "./cni/runner.ts";
import { podnetStack } from "./cni/stacks.ts";
import { bootByHand } from "./pod/by-hand.ts";
import { add, exec, publish, withPod } from "./profile/calls.ts";
import { create, modes, poolConfig } from "./profile/creates.ts";
import { type Path, plotOf, tableOf } from "./profile/report.ts";
import { type Part, usual } from "./profile/timeline.ts";
import { watched } from "./profile/watched.ts";

/** Options of scripts/setup: the benches of containers share their hosts with others' plugins. */
export const setup = "--cni";
export const description = "Where each millisecond of create, ADD, publish and exec goes; plots";

const top = path.resolve(import.meta.dirname, "../..");
const drivers = ["nftables", "iptables"] as const;
/** Short calls are many, and V8 compiles what runs often. */
const callsARound = 5;
const warmingCalls = (rounds: number): number => Math.min(300, rounds * 30);

type Runs = Map<string, (readonly Part[])[]>;

function note(runs: Runs, name: string, parts: readonly Part[]): void {
  runs.set(name, [...(runs.get(name) ?? []), parts]);
}

/** Creates by every way in turn, the same boot by hand, and programs in a pod. */
async function profilePods(directory: string, rounds: number, runs: Runs): Promise<number> {
  const watch = watched(directory);
  await using lab = await openLab("profile-");
  const { env } = watch;
  const config = poolConfig;
  await using podnetd = await startPodnetd({ machine: lab.host, directory, config, env });
  using podnet = connectPodnet({ socket: podnetd.socket });
  await podnet.node.drainPools({});
  const byHand: number[] = [];
  // The first turn compiles code and makes the template; it does not count.
  for (let round = -1; round < rounds; round++) {
    for (const mode of modes) {
      const parts = await create(podnet, lab.host, watch, mode);
      if (round >= 0) note(runs, mode.name, parts);
    }
    byHand.push(await bootByHand(directory));
  }
  await podnet.pods.create({ spec: { name: "one" } });
  for (let i = -50; i < rounds * callsARound; i++) {
    const parts = await exec(podnet, watch);
    if (i >= 0) note(runs, "exec", parts);
  }
  return summarise(byHand).median;
}

/** Containers and published ports, with each firewall driver; machines are stand-ins. */
async function profileHost(directory: string, rounds: number, runs: Runs): Promise<void> {
  const { runner } = await buildRunner(directory);
  for (const driver of drivers) {
    const place = path.join(directory, driver);
    mkdirSync(place);
    const watch = watched(place);
    await using host = await openCniHost(runner, (machine, owned) =>
      podnetStack(place, driver, machine, owned, watch.env),
    );
    using podnet = await withPod(place);
    const warming = warmingCalls(rounds);
    if (driver === "nftables") await host.atOnce(1, warming);
    // (With iptables, programs that podnetd starts take most of it.)
    const before = driver === "nftables" ? warming : callsARound;
    for (let i = -before; i < rounds * callsARound; i++) {
      if (driver === "nftables" && i >= 0) note(runs, "add", await add(host, watch));
      const parts = await publish(podnet, watch);
      if (i >= 0) note(runs, `publish ${driver}`, parts);
    }
  }
}

const pageHead = (rounds: number): string => `# Where each millisecond goes: the tables

\`scripts/bench profile\` wrote this page: medians of ${rounds} creates of each kind, and of
${rounds * callsARound} other calls. Processors: ${availableParallelism()}; load at the end: ${(loadavg()[0] ?? 0).toFixed(1)}. With more load
than processors, times are longer, and parts show the way only. [Performance](../performance.md)
explains the rest.`;

const total = (parts: readonly Part[]): number => parts.at(-1)?.to ?? 0;

/** Runs the benchmark, writes tables and plots and returns the last line. */
export async function run(rounds: number, target: string): Promise<string> {
  // On the disk, where a daemon keeps its record: a commit waits for it.
  const directory = mkdtempSync(path.join(top, "build/bench-"));
  const runs: Runs = new Map();
  let byHandMs = 0;
  try {
    const places = ["pods", "host"].map((name) => path.join(directory, name));
    for (const place of places) mkdirSync(place);
    byHandMs = await profilePods(places[0] as string, rounds, runs);
    await profileHost(places[1] as string, rounds, runs);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  const pathOf = (name: string, title: string, floor?: Path["floor"]): Path => {
    const calls = runs.get(name) ?? [];
    const totalMs = summarise(calls.map(total)).median;
    const more = floor === undefined ? {} : { floor };
    return { name, title, totalMs, parts: usual(calls), ...more };
  };
  const floor = { title: "the QEMU line by hand", ms: byHandMs };
  const creates = modes.map(({ name }) =>
    pathOf(name, `create, ${name}`, name === "cold" ? floor : undefined),
  );
  const calls = [
    pathOf("add", "CNI ADD of a container"),
    ...drivers.map((driver) => pathOf(`publish ${driver}`, `publish a port, ${driver}`)),
    pathOf("exec", "exec true"),
  ];
  mkdirSync(target, { recursive: true });
  const write = (name: string, text: string): void => writeFileSync(path.join(target, name), text);
  write("creates.svg", plotOf("Where the time of a create goes", creates));
  write("calls.svg", plotOf("Where the time of short calls goes", calls));
  const tables = [...creates, ...calls].map(tableOf).join("\n\n");
  write("tables.md", `${pageHead(rounds)}\n\n${tables}\n`);
  console.log(`${tables}\n`);
  console.log(`Plots: ${target}`);
  const ms = Object.fromEntries([...creates, ...calls].map((each) => [each.name, each.totalMs]));
  return lastLine("profile", {
    ...Object.fromEntries(modes.map(({ name }) => [`${name}_ms`, ms[name] ?? Number.NaN])),
    add_ms: ms["add"] ?? Number.NaN,
    publish_ms: ms["publish nftables"] ?? Number.NaN,
    publish_iptables_ms: ms["publish iptables"] ?? Number.NaN,
    exec_ms: ms["exec"] ?? Number.NaN,
  });
}

if (import.meta.main) {
  const [rounds = "9", target = path.join(top, "build/profile")] = process.argv.slice(2);
  console.log(await run(Number(rounds), path.resolve(target)));
}
