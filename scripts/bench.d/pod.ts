/**
 * What a pod costs: boot, create, hot-plug, delete, memory. podnet's boot runs turn by turn with
 * the same QEMU command line started by hand, so that the machine's noise falls on both.
 *   scripts/bench pod [ROUNDS]
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { openLab, type Machine } from "../../test/lab/lab.ts";
import { startPodnetd } from "../../test/lab/podnetd.ts";
import { lastLine, row, summarise } from "../measure.ts";
import { bootByHand } from "./pod/by-hand.ts";
import { measureHotplug } from "./pod/hotplug.ts";

export const description = "A pod's boot, create, hot-plug, delete and memory; QEMU by hand";

const top = path.resolve(import.meta.dirname, "../..");

interface PodFigures {
  /** QEMU exec → READY, by podnetd's own spans. */
  readonly ready: number;
  /** API call → first ping reply. */
  readonly create: number;
  /** First NIC plugged → first ping reply. */
  readonly firstNic: number;
  readonly delete: number;
  readonly agentRssKib: number;
  readonly qemuRssMib: number;
}

async function createAndDelete(podnet: Podnet, host: Machine): Promise<PodFigures> {
  const begin = performance.now();
  const { pod } = await podnet.pods.create({ spec: {} });
  if (pod === undefined) throw new Error("The daemon answered without a pod");
  await host.ping((pod.interfaces[0]?.addresses[0] ?? "").replace(/\/.*/, ""));
  const create = performance.now() - begin;
  const span = (step: string) => {
    const found = pod.spans.find((one) => one.step === step);
    if (found === undefined) throw new Error(`The pod has no span "${step}"`);
    return found;
  };
  const booted = span("guest.ready");
  const figures = {
    ready: booted.startMs + booted.durationMs - span("vm.start").startMs,
    create,
    firstNic: create - span("nic.plug").startMs,
    agentRssKib: pod.guest?.agentRssKib ?? Number.NaN,
    qemuRssMib: residentMib(pod.vm?.pid ?? 0),
  };
  const deleting = performance.now();
  await podnet.pods.delete({ idOrName: pod.id });
  return { ...figures, delete: performance.now() - deleting };
}

function residentMib(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/VmRSS:\s*(\d+) kB/.exec(status)?.[1]) / 1024;
}

/** Runs the benchmark, prints its table and returns the last line. */
export async function run(rounds: number): Promise<string> {
  // On the disk, where a daemon keeps its record, and not on the sandbox's tmpfs: a commit waits
  // for it.
  const directory = mkdtempSync(path.join(top, "build/bench-"));
  try {
    await using lab = await openLab("bench-");
    await using podnetd = await startPodnetd({ machine: lab.host, directory });
    using podnet = connectPodnet({ socket: podnetd.socket });
    // A first pod warms the page cache, the compiled code and the neighbour tables; it does not
    // count.
    await createAndDelete(podnet, lab.host);
    const byHand: number[] = [];
    const pods: PodFigures[] = [];
    for (let round = 0; round < rounds; round++) {
      // Who goes first takes turns too: what one leaves behind falls on the other.
      if (round % 2 === 0) byHand.push(await bootByHand(directory));
      pods.push(await createAndDelete(podnet, lab.host));
      if (round % 2 === 1) byHand.push(await bootByHand(directory));
    }
    const hotplug = await measureHotplug(16);
    return report(byHand, pods, hotplug);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function report(byHand: number[], pods: readonly PodFigures[], hotplug: number[]): string {
  const of = (key: keyof PodFigures) => summarise(pods.map((figures) => figures[key]));
  const hand = summarise(byHand);
  const ready = of("ready");
  console.log(
    `${pods.length} pods, Debian kernel, software emulation, 1 vCPU, 128 MiB; milliseconds`,
  );
  row("", "median", "p99");
  row("QEMU exec → READY, podnet", ready.median, ready.p99);
  row("QEMU exec → READY, the same line by hand", hand.median, hand.p99);
  row("API call → first ping reply", of("create").median, of("create").p99);
  row("first NIC of a fresh guest → first ping", of("firstNic").median, of("firstNic").p99);
  row("NIC hot-plug → first ping", summarise(hotplug).median, summarise(hotplug).p99);
  row("delete", of("delete").median, of("delete").p99);
  row("agent in the guest, KiB resident", of("agentRssKib").median, of("agentRssKib").p99);
  row("QEMU, MiB resident", of("qemuRssMib").median, of("qemuRssMib").p99);
  console.log(
    "For scale, the ancestors' own figures: hyperd's create 3800, hyperstart's hot-add 200 to 500",
  );
  return lastLine("pod", {
    ready_ms: ready.median,
    ready_ratio: ready.median / hand.median,
    create_ms: of("create").median,
    hotplug_ms: summarise(hotplug).median,
    delete_ms: of("delete").median,
    agent_rss_kib: of("agentRssKib").median,
    qemu_rss_mib: of("qemuRssMib").median,
  });
}

if (import.meta.main) {
  console.log(await run(Number(process.argv[2] ?? 9)));
}
