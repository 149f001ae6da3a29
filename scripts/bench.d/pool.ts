/**
 * What a pool saves: creates that take a machine of the pool, clone one and boot one, turn by turn
 * with a container of podman's on Debian's bridge plugin; the memory of machines that wait, and of
 * a clone that does nothing; and a hundred creates at once.
 *   scripts/bench pool [ROUNDS [BURST]]
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { firstEcho } from "../../test/lab/echo.ts";
import { type Machine, openLab } from "../../test/lab/lab.ts";
import { buildPauseImage, pauseImage } from "../../test/lab/pause-image.ts";
import { type Podnetd, startPodnetd } from "../../test/lab/podnetd.ts";
import { until } from "../../test/lab/until.ts";
import { lastLine, row, summarise } from "../measure.ts";
import { ownMib } from "./pod/own-memory.ts";
import { openPodmanOnBridge } from "./pod/podman-on-bridge.ts";

export const description =
  "Pods from the pool, cloned and booted, next to podman: create, memory, a burst";
export const setup = "--cni";

const ways = ["pool", "template", "cold"] as const;
type Way = (typeof ways)[number];

/** Machines that wait for the creates which are measured by turns. */
const poolSize = 4;

/** A host with podnetd, whose pods come from its pool unless they say otherwise. */
interface Node extends AsyncDisposable {
  readonly host: Machine;
  readonly podnetd: Podnetd;
  readonly podnet: Podnet;
}

async function openNode(directory: string, size: number): Promise<Node> {
  await using stack = new AsyncDisposableStack();
  mkdirSync(directory);
  const { host } = stack.use(await openLab("pool-"));
  // The network's pool of addresses holds a burst; none of them is in quarantine.
  const config = `factory = "pool"\nquarantine_s = 0\n[pool]\nsize = ${size}\n`;
  const podnetd = stack.use(await startPodnetd({ machine: host, directory, config }));
  const podnet = connectPodnet({ socket: podnetd.socket });
  stack.defer(() => podnet.close());
  const held = stack.move();
  return { host, podnetd, podnet, [Symbol.asyncDispose]: () => held.disposeAsync() };
}

/** The ids of the machines that wait now. */
function waiting(directory: string, { podnetd }: Node): string[] {
  const log = podnetd.log();
  const marks = readdirSync(path.join(directory, "run/pods"));
  return marks
    .filter((name) => name.startsWith("parked-"))
    .map((name) => name.slice("parked-".length))
    .filter((id) =>
      log
        .split("\n")
        .some((line) => line.includes(`"${id}"`) && line.includes("waits in the pool")),
    );
}

const filled = (directory: string, node: Node, count: number): Promise<string[]> =>
  until(
    `${count} machines to wait`,
    () => {
      const ids = waiting(directory, node);
      return ids.length >= count && ids;
    },
    600_000,
  );

const addressOf = ({ interfaces }: Pod): string =>
  (interfaces[0]?.addresses[0] ?? "").replace(/\/.*/, "");

const detail = (spans: readonly { step: string; detail: string }[]): string =>
  spans.find(({ step }) => step === "vm.start")?.detail ?? "";

const cameFromPool = (text: string): boolean => text.endsWith("from the pool");

/** Milliseconds from the call to the first reply. */
async function create({ host, podnet }: Node, way: Way): Promise<number> {
  const begin = performance.now();
  const { pod } = await podnet.pods.create({ spec: { boot: { factory: way } } });
  if (pod === undefined) throw new Error("The daemon answered without a pod");
  const ms = (await firstEcho(host, addressOf(pod))) - begin;
  if (cameFromPool(detail(pod.spans)) !== (way === "pool"))
    throw new Error(`A pod by ${way} came otherwise: ${detail(pod.spans)}`);
  await podnet.pods.delete({ idOrName: pod.id });
  return ms;
}

/** How long a clone does nothing until its memory is read, milliseconds. */
const idleMs = 2000;

/** Memory of a clone that runs and does nothing, MiB. */
async function idleMib({ podnet }: Node): Promise<number> {
  const { pod } = await podnet.pods.create({ spec: { boot: { factory: "template" } } });
  if (pod === undefined) throw new Error("The daemon answered without a pod");
  await delay(idleMs);
  const mib = ownMib(pod.id);
  await podnet.pods.delete({ idOrName: pod.id });
  return mib;
}

/** A host on which podman runs containers, each on Debian's bridge plugin. */
interface Peer extends AsyncDisposable {
  /** Milliseconds until `podman run` answers: the container runs, and has its network. */
  run(): Promise<number>;
}

async function openPeer(directory: string): Promise<Peer> {
  const peer = await openPodmanOnBridge(directory, buildPauseImage);
  return {
    async run() {
      const begin = performance.now();
      const id = await peer.podman("run", "--detach", "--network", peer.network, pauseImage);
      const ms = performance.now() - begin;
      await peer.podman("rm", "--force", "--time", "0", id.trim());
      return ms;
    },
    [Symbol.asyncDispose]: () => peer[Symbol.asyncDispose](),
  };
}

/** Samples: milliseconds of each way, MiB of machines that wait and of clones that run idle. */
interface Turns {
  readonly ms: Record<Way | "podman", number[]>;
  readonly parked: readonly number[];
  readonly idle: readonly number[];
}

async function measureByTurns(directory: string, rounds: number): Promise<Turns> {
  const ms: Turns["ms"] = { pool: [], template: [], cold: [], podman: [] };
  const idle: number[] = [];
  await using node = await openNode(directory, poolSize);
  await using peer = await openPeer(path.join(directory, "podman"));
  // The first turns compile podnetd's code and do not count.
  for (let round = -3; round < rounds; round++) {
    for (const way of ways) {
      if (way === "cold" && round % 3 !== 0) continue;
      await filled(directory, node, poolSize);
      const took = await create(node, way);
      if (round >= 0) ms[way].push(took);
    }
    await filled(directory, node, poolSize);
    const took = await peer.run();
    if (round >= 0) ms.podman.push(took);
    if (round >= 0 && round % 3 === 0) idle.push(await idleMib(node));
  }
  const parked = (await filled(directory, node, poolSize)).map(ownMib);
  return { ms, parked, idle };
}

interface Burst {
  readonly ms: number;
  readonly failures: number;
  readonly fromPool: number;
}

/** Creates at once, until the last of them has answered a ping. */
async function burst(directory: string, count: number): Promise<Burst> {
  await using node = await openNode(directory, count);
  await filled(directory, node, count);
  const begin = performance.now();
  const pods = await Promise.allSettled(
    Array.from({ length: count }, async () => {
      const { pod } = await node.podnet.pods.create({ spec: {} });
      if (pod === undefined) throw new Error("The daemon answered without a pod");
      return { at: await firstEcho(node.host, addressOf(pod)), from: detail(pod.spans) };
    }),
  );
  const up = pods.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  for (const each of pods) if (each.status === "rejected") console.log(String(each.reason));
  return {
    ms: Math.max(...up.map(({ at }) => at)) - begin,
    failures: count - up.length,
    fromPool: up.filter(({ from }) => cameFromPool(from)).length,
  };
}

/** Runs the benchmark, prints its table and returns the last line. */
export async function run(rounds: number, burstOf: number): Promise<string> {
  // On the disk, where a daemon keeps its record, and not on the sandbox's tmpfs: a commit waits
  // for it.
  const directory = mkdtempSync(path.resolve(import.meta.dirname, "../../build/bench-"));
  try {
    const { ms, parked, idle } = await measureByTurns(path.join(directory, "turns"), rounds);
    const many = await burst(path.join(directory, "burst"), burstOf);
    row("API call → first ping reply, milliseconds", "median", "p99");
    for (const way of ways) row(way, summarise(ms[way]).median, summarise(ms[way]).p99);
    row("podman run (until it answers)", summarise(ms.podman).median, summarise(ms.podman).p99);
    row("a machine that waits, MiB of its own", summarise(parked).median);
    row("a clone that runs idle, MiB of its own", summarise(idle).median);
    row(`${burstOf} creates at once → last ping reply`, many.ms);
    console.log(`${many.fromPool} of ${burstOf} came from the pool, ${many.failures} failed`);
    const warm = summarise(ms.pool);
    return lastLine("pool", {
      warm_ms: warm.median,
      warm_p99_ms: warm.p99,
      clone_ms: summarise(ms.template).median,
      cold_ms: summarise(ms.cold).median,
      parked_mib: summarise(parked).median,
      idle_mib: summarise(idle).median,
      [`burst${burstOf}_ms`]: many.ms,
      burst_failures: many.failures,
      podman_ratio: summarise(ms.podman).median / warm.median,
    });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

if (import.meta.main) {
  const [rounds = "15", burstOf = "100"] = process.argv.slice(2);
  console.log(await run(Number(rounds), Number(burstOf)));
}
