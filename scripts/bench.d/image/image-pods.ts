import { once } from "node:events";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { connectPodnet, type Podnet } from "../../../api/client.ts";
import { busyboxImage } from "../../../test/lab/busybox-root.ts";
import { openLab } from "../../../test/lab/lab.ts";
import { startPodnetd } from "../../../test/lab/podnetd.ts";
import { until } from "../../../test/lab/until.ts";
import { tarOf, writeDockerArchive } from "../../../test/unit/images/image-archive.ts";
import { ownMib } from "../pod/own-memory.ts";
import { openPodmanOnBridge, type PodmanOnBridge } from "../pod/podman-on-bridge.ts";

export const ways = ["pool", "template", "cold"] as const;
type Way = (typeof ways)[number];

export interface PodFigures {
  /** Milliseconds from the call to the first byte that the main process writes. */
  readonly ms: Readonly<Record<Way | "podman", readonly number[]>>;
  /** Memory of the 2nd and of the 20th pod that no other process has, MiB. */
  readonly second: number;
  readonly twentieth: number;
}

const image = "podnet.test/app:1";
const waiting = 2;

/** An archive of docker save with busybox, which writes a word and waits. */
function buildImage(directory: string): string {
  mkdirSync(directory, { recursive: true });
  busyboxImage(directory);
  const archive = path.join(directory, "app.tar");
  const config = { Cmd: ["sh", "-c", "echo up; exec sleep 1000"], Env: ["PATH=/bin"] };
  const layers = [tarOf(path.join(directory, "busybox"))];
  writeDockerArchive(archive, { layers, config, name: image });
  return archive;
}

/** Milliseconds from the create of a pod until its main process has written something. */
async function toFirstByte(podnet: Podnet, factory: Way, name: string): Promise<number> {
  const begin = performance.now();
  const { pod } = await podnet.pods.create({ spec: { name, boot: { image, factory } } });
  for await (const { output } of podnet.pods.logs({ idOrName: name, follow: true }))
    if (output.case !== undefined) break;
  const ms = performance.now() - begin;
  const origin = pod?.spans.find(({ step }) => step === "vm.start")?.detail ?? "";
  const wanted = { pool: /from the pool$/, template: /a clone with its NIC$/, cold: /^[^,]*$/ };
  if (!wanted[factory].test(origin)) throw new Error(`A pod by ${factory} came so: ${origin}`);
  return ms;
}

/** As above, of a container that podman runs. */
async function containerToFirstByte({ podman, network }: PodmanOnBridge): Promise<number> {
  const begin = performance.now();
  const name = "one";
  const child = podman.spawn("run", "--name", name, "--network", network, image, "echo", "up");
  const ended = once(child, "exit");
  await once(child.stdout as NodeJS.ReadableStream, "data");
  const ms = performance.now() - begin;
  // (podman itself ends only some twenty seconds after the container, or when it is killed.)
  child.kill("SIGKILL");
  await ended;
  await podman("rm", "--force", "--time", "0", name);
  return ms;
}

/**
 * Pods of one image from the pool, cloned and booted, turn by turn with containers of it that
 * podman runs; then twenty pods at a time.
 */
export async function measurePods(rounds: number, directory: string): Promise<PodFigures> {
  const ms: Record<Way | "podman", number[]> = { pool: [], template: [], cold: [], podman: [] };
  const state = path.join(directory, "pods");
  mkdirSync(state);
  await using lab = await openLab("bench-pods-");
  const pool = `[pool]\nsize = 0\nclasses = ["${image} 1x128=${waiting}"]\n`;
  const config = `factory = "pool"\nquarantine_s = 0\n${pool}`;
  await using podnetd = await startPodnetd({ machine: lab.host, directory: state, config });
  using podnet = connectPodnet({ socket: podnetd.socket });
  await podnetd.podnet("image", "import", buildImage(path.join(directory, "build")), image);
  await using peer = await openPodmanOnBridge(path.join(directory, "podman"), (own) =>
    buildImage(path.join(own, "build")),
  );
  const filled = () =>
    until(
      "the pool to be full",
      async () => (await podnet.node.listPools({})).pools.some(({ ready }) => ready === waiting),
      60_000,
    );
  await podnet.node.fillPools({});
  // The first turns compile podnetd's code and do not count.
  for (let round = -2; round < rounds; round++) {
    for (const way of ways) {
      await filled();
      const took = await toFirstByte(podnet, way, "one");
      await podnet.pods.delete({ idOrName: "one", force: true });
      if (round >= 0) ms[way].push(took);
    }
    await filled();
    const took = await containerToFirstByte(peer);
    if (round >= 0) ms.podman.push(took);
  }
  const mib: number[] = [];
  for (let i = 1; i <= 20; i++) {
    const { pod } = await podnet.pods.create({
      spec: { name: `pod${i}`, boot: { image, factory: "template" } },
    });
    if (i === 2 || i === 20) mib.push(ownMib(pod?.id ?? ""));
  }
  await podnet.node.down({});
  return { ms, second: mib[0] ?? 0, twentieth: mib[1] ?? 0 };
}
