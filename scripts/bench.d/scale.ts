/**
 * What a thousand pods on one host cost podnetd: a list, a get, an event for a hundred clients, its
 * event loop while a hundred pods are made at once, its memory, its restart. The hundred run, with
 * stand-ins for their machines, on four bridges; the others are records of stopped pods with a
 * published port each.
 *   scripts/bench scale [ROUNDS]
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { type Machine, openLab } from "../../test/lab/lab.ts";
import { type Podnetd, startPodnetd } from "../../test/lab/podnetd.ts";
import { standInConfig } from "../../test/lab/standin.ts";
import { lastLine, row, summarise } from "../measure.ts";
import { lineChart } from "../plot/lines.ts";
import { addCrowdRows, crowdSize, model } from "./network/crowd.ts";
import {
  fanOut,
  type LoopDelays,
  loopDelays,
  residentMib,
  timed,
  untilServing,
} from "./scale/readings.ts";

export const description = "A thousand pods: list, watch, a burst of creates, memory, restart";

const top = path.resolve(import.meta.dirname, "../..");
/** Machines made at once, and clients that watch. */
const hundred = 100;
const networks = ["second", "third", "fourth"] as const;

/** What is measured with some number of pods. */
interface Costs {
  readonly pods: number;
  readonly list: readonly number[];
  readonly get: readonly number[];
  readonly watch: readonly number[];
  readonly rssMib: number;
}

async function measure(daemon: Podnetd, rounds: number): Promise<Costs> {
  using podnet = connectPodnet({ socket: daemon.socket });
  const times = async (call: () => Promise<unknown>): Promise<number[]> => {
    const took: number[] = [];
    // The first few compile the code and check rows, and do not count.
    for (let round = -3; round < rounds; round++) {
      const ms = await timed(call);
      if (round >= 0) took.push(ms);
    }
    return took;
  };
  let pods = 0;
  const list = await times(async () => {
    pods = (await podnet.pods.list({})).pods.length;
  });
  const get = await times(() => podnet.pods.get({ idOrName: model.name }));
  const watch = await fanOut(daemon.socket, hundred, rounds, changing(podnet));
  return { pods, list, get, watch, rssMib: residentMib(daemon.process.pid as number) };
}

/** A change of the model pod with one event: a port published, or unpublished. */
function changing({ pods }: Podnet): () => Promise<unknown> {
  const idOrName = model.name;
  const ports = [{ hostIp: "0.0.0.0", hostPort: 45_000, podPort: 80 }];
  let isPublished = false;
  return async () => {
    await (isPublished ? pods.unpublishPorts : pods.publishPorts)({ idOrName, ports });
    isPublished = !isPublished;
  };
}

/** Makes a hundred pods at once, on four bridges. */
async function burst(podnet: Podnet): Promise<void> {
  const places = [undefined, ...networks];
  await Promise.all(
    Array.from({ length: hundred }, (_, n) => {
      const network = places[n % places.length];
      const interfaces = network === undefined ? {} : { interfaces: [{ network }] };
      return podnet.pods.create({ spec: { name: `made-${n}`, ...interfaces } });
    }),
  );
}

/** Pings a pod every 10 ms until stopped; answers how many were lost. */
function flow(host: Machine, address: string): () => Promise<number> {
  const ping = host.spawn(["ping", "-q", "-i", "0.01", "-W", "5", address], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  let said = "";
  ping.stdout?.on("data", (chunk: Buffer) => (said += chunk.toString()));
  const ended = new Promise<void>((resolve) => void ping.once("close", () => resolve()));
  return async () => {
    ping.kill("SIGINT");
    await ended;
    const [, sent, received] = /(\d+) packets transmitted, (\d+) received/.exec(said) ?? [];
    if (sent === undefined) throw new Error(`ping said "${said}"`);
    return Number(sent) - Number(received);
  };
}

interface Figures {
  readonly costs: readonly Costs[];
  readonly delays: LoopDelays;
  readonly burstMs: number;
  readonly restarts: readonly number[];
  readonly lost: number;
}

async function run(rounds: number, restarts: number): Promise<Figures> {
  // On the disk, where a daemon keeps its record: a commit waits for it.
  const directory = mkdtempSync(path.join(top, "build/bench-"));
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rmSync(directory, { recursive: true, force: true }));
  const { host } = stack.use(await openLab("scale-"));
  const config = `drift_s = 3600
firewall = "nftables"
limits.requests_per_s = 1000000
limits.connections_per_s = 1000000
network.cidr = "10.88.0.0/20"
${await standInConfig(path.join(directory, "image"))}`;
  const start = (): Promise<Podnetd> =>
    startPodnetd({ machine: host, directory, config, readyMs: 120_000 });
  let daemon = await start();
  stack.defer(async () => {
    await daemon.tryPodnet("down", "--yes");
    await daemon.stop();
  });
  {
    using podnet = connectPodnet({ socket: daemon.socket });
    for (const [n, name] of networks.entries())
      await podnet.networks.create({ spec: { name, subnets: [{ cidr: `10.${100 + n}.0.0/20` }] } });
    await podnet.pods.create({ spec: { name: model.name, ports: [...model.ports] } });
  }
  const few = await measure(daemon, rounds);
  await daemon.stop();
  addCrowdRows(daemon.stateDir);
  daemon = await start();
  const recorded = await measure(daemon, rounds);
  let burstMs = 0;
  let address = "";
  let delays: LoopDelays;
  {
    using podnet = connectPodnet({ socket: daemon.socket });
    delays = await loopDelays(daemon.socket, async () => {
      burstMs = await timed(() => burst(podnet));
    });
    const { pod } = await podnet.pods.get({ idOrName: "made-1" });
    address = (pod?.interfaces[0]?.addresses[0] ?? "").replace(/\/.*/, "");
  }
  const many = await measure(daemon, rounds);
  const took: number[] = [];
  await host.ping(address);
  const stopped = flow(host, address);
  for (let n = 0; n < restarts; n++) {
    await daemon.stop();
    const [again, ms] = await Promise.all([start(), untilServing(daemon.socket)]);
    daemon = again;
    took.push(ms);
  }
  return { costs: [few, recorded, many], delays, burstMs, restarts: took, lost: await stopped() };
}

function report({ costs, delays, burstMs, restarts, lost }: Figures, target: string): string {
  row("", ...costs.map(({ pods }) => `${pods} pods`), "p99");
  const last = costs.at(-1) as Costs;
  for (const [title, key] of [
    ["list, ms", "list"],
    ["get, ms", "get"],
    [`a change until ${hundred} clients have it, ms`, "watch"],
  ] as const)
    row(title, ...costs.map((each) => summarise(each[key]).median), summarise(last[key]).p99);
  row("podnetd, MiB resident", ...costs.map(({ rssMib }) => rssMib));
  row(`${hundred} creates at once, ms`, burstMs);
  row("event loop's delay meanwhile, p99, ms", delays.podnetd);
  row("  of a process that only waits", delays.idle);
  row("start of podnetd until it serves, ms", ...restarts);
  row("packets of a flow lost by restarts", lost);
  const line = (name: string, key: "list" | "get" | "watch") => ({
    name,
    points: costs.map((each) => [each.pods, summarise(each[key]).median] as const),
  });
  mkdirSync(target, { recursive: true });
  const lines = [line("list", "list"), line("get", "get"), line("100 watch", "watch")];
  const axes = { x: "pods on the host", y: "ms" };
  writeFileSync(
    path.join(target, "scale.svg"),
    lineChart("What calls cost by the number of pods", axes, lines),
  );
  console.log(`Plot: ${target}`);
  return lastLine("scale", {
    list1000_ms: summarise(last.list).median,
    get1000_ms: summarise(last.get).median,
    watch100_ms: summarise(last.watch).median,
    loop_p99_ms: delays.podnetd,
    loop_idle_p99_ms: delays.idle,
    rss1000_mib: last.rssMib,
    restart1000_ms: summarise(restarts).median,
    restart_lost: lost,
  });
}

if (import.meta.main) {
  const [rounds = "15", target = path.join(top, "build/profile")] = process.argv.slice(2);
  if (crowdSize + hundred + 1 !== 1000) throw new Error("These are not a thousand pods");
  console.log(report(await run(Number(rounds), 3), path.resolve(target)));
}
