/**
 * What a pool saves: creates that take a machine of the pool, clone one and boot one, turn by turn;
 * the memory of machines that wait; and a hundred creates at once.
 *   scripts/bench pool [ROUNDS [BURST]]
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { firstEcho } from "../../test/lab/echo.ts";
import { type Machine, openLab } from "../../test/lab/lab.ts";
import { type Podnetd, startPodnetd } from "../../test/lab/podnetd.ts";
import { until } from "../../test/lab/until.ts";
import { lastLine, row, summarise } from "../measure.ts";

export const description = "Pods from the pool, cloned and booted: create, memory, a burst";

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

/** Memory of a machine that no other process has, MiB. */
function ownMib(id: string): number {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const words = readFileSync(`/proc/${pid}/cmdline`, "latin1").split("\0");
      if (!words[0]?.includes("qemu") || !words.includes(`guest=podnet-${id},debug-threads=on`))
        continue;
      const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, "latin1");
      const kib = (key: string): number =>
        Number(new RegExp(`^${key}:\\s*(\\d+) kB`, "m").exec(rollup)?.[1]);
      return (kib("Private_Clean") + kib("Private_Dirty")) / 1024;
    } catch {
      // It ended while we looked.
    }
  }
  throw new Error(`No machine ${id} runs`);
}

async function measureByTurns(
  directory: string,
  rounds: number,
): Promise<{ readonly ms: Record<Way, number[]>; readonly mib: number[] }> {
  const ms: Record<Way, number[]> = { pool: [], template: [], cold: [] };
  await using node = await openNode(directory, poolSize);
  // The first turns compile podnetd's code and do not count.
  for (let round = -3; round < rounds; round++) {
    for (const way of ways) {
      if (way === "cold" && round % 3 !== 0) continue;
      await filled(directory, node, poolSize);
      const took = await create(node, way);
      if (round >= 0) ms[way].push(took);
    }
  }
  const mib = (await filled(directory, node, poolSize)).map(ownMib);
  return { ms, mib };
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
    const { ms, mib } = await measureByTurns(path.join(directory, "turns"), rounds);
    const many = await burst(path.join(directory, "burst"), burstOf);
    row("API call → first ping reply, milliseconds", "median", "p99");
    for (const way of ways) row(way, summarise(ms[way]).median, summarise(ms[way]).p99);
    row("a machine that waits, MiB of its own", summarise(mib).median);
    row(`${burstOf} creates at once → last ping reply`, many.ms);
    console.log(`${many.fromPool} of ${burstOf} came from the pool, ${many.failures} failed`);
    const warm = summarise(ms.pool);
    return lastLine("pool", {
      warm_ms: warm.median,
      warm_p99_ms: warm.p99,
      clone_ms: summarise(ms.template).median,
      cold_ms: summarise(ms.cold).median,
      parked_mib: summarise(mib).median,
      [`burst${burstOf}_ms`]: many.ms,
      burst_failures: many.failures,
    });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

if (import.meta.main) {
  const [rounds = "15", burstOf = "100"] = process.argv.slice(2);
  console.log(await run(Number(rounds), Number(burstOf)));
}
