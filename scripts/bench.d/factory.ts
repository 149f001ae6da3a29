/**
 * What a clone saves: creates through the daemon, booted and cloned turn by turn, so that the
 * machine's noise falls on both; then memory, of several clones side by side.
 *   scripts/bench factory [ROUNDS]
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { openLab, type Machine } from "../../test/lab/lab.ts";
import { startPodnetd } from "../../test/lab/podnetd.ts";
import { lastLine, row, summarise } from "../measure.ts";

export const description = "A pod booted and one cloned from a template: create and memory";

type How = "cold" | "template";

/** Clones that run at a time when memory is measured. */
const sideBySide = 10;

interface Figures {
  /** API call → first ping reply. */
  readonly create: number[];
  /** Starting QEMU → the agent has said who it is. */
  readonly ready: number[];
  /** Proportional set size while it runs alongside `sideBySide - 1` others of its kind. */
  readonly pssMib: number[];
}

async function create(podnet: Podnet, factory: How): Promise<Pod> {
  const { pod } = await podnet.pods.create({ spec: { boot: { factory } } });
  if (pod === undefined) throw new Error("The daemon answered without a pod");
  return pod;
}

async function measure(podnet: Podnet, host: Machine, how: How, into: Figures): Promise<void> {
  const begin = performance.now();
  const pod = await create(podnet, how);
  await host.ping((pod.interfaces[0]?.addresses[0] ?? "").replace(/\/.*/, ""));
  into.create.push(performance.now() - begin);
  const span = (step: string) => {
    const found = pod.spans.find((one) => one.step === step);
    if (found === undefined) throw new Error(`The pod has no span "${step}"`);
    return found;
  };
  const { startMs, durationMs } = span("guest.ready");
  into.ready.push(startMs + durationMs - span("vm.start").startMs);
  await podnet.pods.delete({ idOrName: pod.id });
}

/** What each of a number of pods takes, counting what they share in equal parts. */
async function measureMemory(podnet: Podnet, how: How, into: Figures): Promise<void> {
  const pods: Pod[] = [];
  for (let i = 0; i < sideBySide; i++) pods.push(await create(podnet, how));
  for (const { vm } of pods) {
    const rollup = readFileSync(`/proc/${vm?.pid ?? 0}/smaps_rollup`, "utf8");
    into.pssMib.push(Number(/^Pss:\s*(\d+) kB/m.exec(rollup)?.[1]) / 1024);
  }
  for (const { id } of pods) await podnet.pods.delete({ idOrName: id });
}

/** Runs the benchmark, prints its table and returns the last line. */
export async function run(rounds: number): Promise<string> {
  const none = (): Figures => ({ create: [], ready: [], pssMib: [] });
  const figures = { cold: none(), template: none() };
  // On the disk, where a daemon keeps its record, and not on the sandbox's tmpfs: a commit waits
  // for it.
  const directory = mkdtempSync(path.resolve(import.meta.dirname, "../../build/bench-"));
  let firstClone = 0;
  try {
    await using lab = await openLab("bench-");
    await using podnetd = await startPodnetd({ machine: lab.host, directory });
    using podnet = connectPodnet({ socket: podnetd.socket });
    // The first of each warms page cache and compiled code; the first clone also waits for its
    // template.
    await measure(podnet, lab.host, "cold", none());
    const first = none();
    await measure(podnet, lab.host, "template", first);
    firstClone = first.create[0] ?? Number.NaN;
    for (let round = 0; round < rounds; round++) {
      // Who goes first takes turns too: what one leaves behind falls on the other.
      const turns: How[] = round % 2 === 0 ? ["cold", "template"] : ["template", "cold"];
      for (const how of turns) await measure(podnet, lab.host, how, figures[how]);
    }
    for (const how of ["cold", "template"] as const) await measureMemory(podnet, how, figures[how]);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  return report(figures.cold, figures.template, firstClone);
}

function report(cold: Figures, clone: Figures, firstClone: number): string {
  console.log(
    `${cold.create.length} pods each, Debian kernel, software emulation, 1 vCPU, 128 MiB; medians, milliseconds`,
  );
  row("", "cold", "p99", "clone", "p99");
  const line = (title: string, key: keyof Figures): void => {
    const [ofCold, ofClone] = [summarise(cold[key]), summarise(clone[key])];
    row(title, ofCold.median, ofCold.p99, ofClone.median, ofClone.p99);
  };
  line("API call → first ping reply", "create");
  line("QEMU exec → the agent has said who it is", "ready");
  line(`MiB resident, shared ones in parts, of ${sideBySide}`, "pssMib");
  console.log(`The first clone, with the making of its template: ${firstClone.toFixed(0)} ms`);
  const [coldMs, cloneMs] = [summarise(cold.create).median, summarise(clone.create).median];
  return lastLine("factory", {
    cold_ms: coldMs,
    clone_ms: cloneMs,
    ratio: coldMs / cloneMs,
    clone_pss_mib: summarise(clone.pssMib).median,
  });
}

if (import.meta.main) {
  console.log(await run(Number(process.argv[2] ?? 9)));
}
