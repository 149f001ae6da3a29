/**
 * A sandbox of Kubernetes in podnet, from the pool and as a clone, next to one of Debian's
 * containerd with runc and Debian's bridge plugin. The hosts stand side by side. By turns each
 * runs, stops and removes one sandbox, then eight at once. podnet's sandbox is a machine whose
 * network works; containerd's is a process in namespaces.
 *   scripts/bench cri [ROUNDS]
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import type { Client } from "@connectrpc/connect";
import { connectPodnet } from "../../api/client.ts";
import type { RuntimeService } from "../../daemon/cri/gen/cri_pb.ts";
import { openContainerHost } from "../../test/lab/container-host.ts";
import { startContainerd } from "../../test/lab/containerd.ts";
import { openCri } from "../../test/lab/cri/client.ts";
import { openLab } from "../../test/lab/lab.ts";
import { buildPauseImage } from "../../test/lab/pause-image.ts";
import { startPodnetd } from "../../test/lab/podnetd.ts";
import { lastLine, row, summarise } from "../measure.ts";

export const setup = "--cni";
export const description = "Kubernetes' sandboxes: run, stop, eight at once, next to containerd";

const top = path.resolve(import.meta.dirname, "../..");
const atOnce = 8;
/** Of these, rounds in which eight are run at once: each needs a full pool. */
const everyRounds = 3;

type Cri = Client<typeof RuntimeService>;
const verbs = ["run", "stop", "remove"] as const;

/** A runtime on a host of its own, and what it took, milliseconds. */
interface Runtime {
  readonly title: string;
  readonly cri: Cri;
  /** Before each measurement: the pool is full again. */
  rested(): Promise<void>;
  readonly ms: Record<(typeof verbs)[number] | "atOnce", number[]>;
}

let made = 0;

/** A sandbox's configuration as kubelet sends it, each with a name of its own. */
const config = (directory: string) => {
  const name = `pod-${made++}`;
  return {
    metadata: { name, uid: `uid-${name}`, namespace: "default", attempt: 0 },
    hostname: name,
    logDirectory: path.join(directory, name),
    linux: {},
  };
};

const timed = async <T>(into: number[] | undefined, call: () => Promise<T>): Promise<T> => {
  const begin = performance.now();
  const answer = await call();
  into?.push(performance.now() - begin);
  return answer;
};

async function measureOne({ cri, ms, rested }: Runtime, logs: string, counts: boolean) {
  await rested();
  const into = (verb: keyof typeof ms) => (counts ? ms[verb] : undefined);
  const asked = { config: config(logs) };
  const { podSandboxId } = await timed(into("run"), () => cri.runPodSandbox(asked));
  await timed(into("stop"), () => cri.stopPodSandbox({ podSandboxId }));
  await timed(into("remove"), () => cri.removePodSandbox({ podSandboxId }));
}

/** Eight at once, until the last one answers. */
async function measureMany({ cri, ms, rested }: Runtime, logs: string): Promise<void> {
  await rested();
  const asked = Array.from({ length: atOnce }, () => ({ config: config(logs) }));
  const answers = await timed(ms.atOnce, () =>
    Promise.all(asked.map((each) => cri.runPodSandbox(each))),
  );
  for (const { podSandboxId } of answers) {
    await cri.stopPodSandbox({ podSandboxId });
    await cri.removePodSandbox({ podSandboxId });
  }
}

const samples = (): Runtime["ms"] => ({ run: [], stop: [], remove: [], atOnce: [] });

async function openPodnet(
  stack: AsyncDisposableStack,
  directory: string,
  factory: "pool" | "template",
): Promise<Runtime> {
  mkdirSync(directory);
  const { host } = stack.use(await openLab(`cri-${factory}-`));
  const socket = path.join(directory, "cri.sock");
  const daemon = stack.use(
    await startPodnetd({
      machine: host,
      directory,
      config: `factory = "${factory}"
quarantine_s = 0
firewall = "nftables"
limits.requests_per_s = 100000
[pool]
size = ${atOnce}
[cri]
socket = "${socket}"
`,
    }),
  );
  const podnet = connectPodnet({ socket: daemon.socket });
  stack.defer(() => podnet.close());
  const clients = openCri(socket);
  stack.defer(() => clients[Symbol.dispose]());
  return {
    title: factory === "pool" ? "podnet, from the pool" : "podnet, a clone",
    cri: clients.runtime,
    rested: async () => {
      if (factory === "pool") await podnet.node.fillPools({});
    },
    ms: samples(),
  };
}

async function openContainerd(stack: AsyncDisposableStack, directory: string): Promise<Runtime> {
  const host = stack.use(await openContainerHost(directory));
  host.writeList("10-bench.conflist", {
    cniVersion: "1.0.0",
    name: "bench",
    plugins: [
      {
        type: "bridge",
        bridge: "bench0",
        isGateway: true,
        ipMasq: true,
        ipam: { type: "host-local", subnet: "10.77.0.0/16", routes: [{ dst: "0.0.0.0/0" }] },
      },
      { type: "portmap", capabilities: { portMappings: true } },
    ],
  });
  const containerd = stack.use(await startContainerd(host, buildPauseImage(directory)));
  return {
    title: "containerd and runc",
    cri: containerd.cri,
    rested: async () => {},
    ms: samples(),
  };
}

async function run(rounds: number): Promise<string> {
  // On the disk, where a runtime keeps its records: a commit waits for it.
  const directory = mkdtempSync(path.join(top, "build/bench-"));
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rmSync(directory, { recursive: true, force: true }));
  const at = (name: string): string => path.join(directory, name);
  const pool = await openPodnet(stack, at("pool"), "pool");
  const clone = await openPodnet(stack, at("clone"), "template");
  const containerd = await openContainerd(stack, at("containerd"));
  const runtimes = [pool, clone, containerd];
  // The first turns compile code and do not count.
  for (let round = -2; round < rounds; round++)
    for (const runtime of runtimes) await measureOne(runtime, directory, round >= 0);
  for (let round = 0; round < rounds; round += everyRounds)
    for (const runtime of runtimes) await measureMany(runtime, directory);
  return report(pool, clone, containerd);
}

function report(pool: Runtime, clone: Runtime, containerd: Runtime): string {
  row("ms", "run", "p99", "stop", "remove", `${atOnce} at once`);
  for (const { title, ms } of [pool, clone, containerd]) {
    const { median, p99 } = summarise(ms.run);
    row(
      title,
      median,
      p99,
      summarise(ms.stop).median,
      summarise(ms.remove).median,
      summarise(ms.atOnce).median,
    );
  }
  const median = ({ ms }: Runtime, what: keyof Runtime["ms"]): number => summarise(ms[what]).median;
  return lastLine("cri", {
    run_ms: median(pool, "run"),
    run_p99_ms: summarise(pool.ms.run).p99,
    run_ratio: median(containerd, "run") / median(pool, "run"),
    clone_ratio: median(containerd, "run") / median(clone, "run"),
    stop_ms: median(pool, "stop"),
    stop_ratio: median(containerd, "stop") / median(pool, "stop"),
    parallel_ratio: median(containerd, "atOnce") / median(pool, "atOnce"),
  });
}

if (import.meta.main) console.log(await run(Number(process.argv[2] ?? 15)));
