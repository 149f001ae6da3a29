/**
 * What an import of a container image costs next to the least that others do with one: umoci, which
 * unpacks its layers into a directory and packs nothing. Both read the same layers from the same
 * disk, in turns; podnetd imports an archive of the layout, in its confined process. Then what pods
 * of an image cost until their main process speaks, next to podman.
 *   scripts/bench image [ROUNDS]
 */
import { mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import path from "node:path";
import { type Podnet, connectPodnet } from "../../api/client.ts";
import { run as runCommand } from "../../linux/processes/command.ts";
import { openLab } from "../../test/lab/lab.ts";
import { umoci } from "../../test/lab/registry.ts";
import { startPodnetd } from "../../test/lab/podnetd.ts";
import { tarOf, writeLayout } from "../../test/unit/images/image-archive.ts";
import { lastLine, row, summarise } from "../measure.ts";
import { measurePods, ways } from "./image/image-pods.ts";

/** Options of scripts/setup: umoci. */
export const setup = "--cni";
export const description =
  "A container image: its import next to umoci's, its pods next to podman's containers";

const top = path.resolve(import.meta.dirname, "../..");
/** Two layers of files as images have them: thousands of small ones, and programs. */
const trees = ["/usr/lib/python3.11", "/usr/share/perl"];
const limit = { timeoutMs: 300_000 };

const timed = async (work: () => Promise<unknown>): Promise<number> => {
  const before = performance.now();
  await work();
  return performance.now() - before;
};

async function importOnce(client: Podnet, archive: string): Promise<void> {
  const start = { name: "bench", path: archive, choose: "" };
  const requests = (async function* one() {
    yield { input: { case: "start" as const, value: start } };
  })();
  for await (const { image } of client.images.import(requests)) if (image !== undefined) return;
  throw new Error("There is no image");
}

interface Figures {
  readonly podnet: number[];
  readonly umoci: number[];
}

/** Milliseconds of each import, and bytes that are imported. */
async function measureImport(rounds: number, directory: string) {
  const layout = path.join(directory, "layout");
  const layers = trees.map((tree) => tarOf(tree));
  writeLayout(layout, { layers, name: "bench", compression: "gzip" });
  const archive = path.join(directory, "image.tar");
  await runCommand(["tar", "-C", layout, "-cf", archive, "."], limit);
  const bytes = layers.reduce((sum, layer) => sum + layer.length, 0);
  await using lab = await openLab("bench-image-");
  const state = path.join(directory, "podnetd");
  mkdirSync(state);
  await using podnetd = await startPodnetd({ machine: lab.host, directory: state });
  using client = connectPodnet({ socket: podnetd.socket });
  const figures: Figures = { podnet: [], umoci: [] };
  for (let round = -1; round < rounds; round++) {
    const imported = await timed(() => importOnce(client, archive));
    await client.images.remove({ reference: "bench" });
    const bundle = path.join(directory, "bundle");
    const unpacked = await timed(() =>
      runCommand([umoci, "unpack", "--image", `${layout}:bench`, bundle], limit),
    );
    rmSync(bundle, { recursive: true });
    // The first turn fills the host's cache and does not count.
    if (round < 0) continue;
    figures.podnet.push(imported);
    figures.umoci.push(unpacked);
  }
  return { figures, bytes, stored: statSync(archive).size };
}

/** Measures, prints the table and returns the last line. */
async function run(rounds: number): Promise<string> {
  // Imports wait for the disk: the files do not stand on the sandbox's tmpfs.
  const directory = mkdtempSync(path.join(top, "build/bench-"));
  using _directory = {
    [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }),
  };
  const { figures, bytes, stored } = await measureImport(rounds, directory);
  const rate = (times: readonly number[]): number => bytes / 1e6 / (summarise(times).median / 1000);
  console.log(
    `${(bytes / 1e6).toFixed(0)} MB in ${trees.length} layers, ${(stored / 1e6).toFixed(0)} MB stored`,
  );
  row("import", "MB/s", "ms p50");
  for (const [title, times] of [
    ["podnet: layers to one squashfs", figures.podnet],
    ["umoci unpack: layers to a directory", figures.umoci],
  ] as const)
    row(`  ${title}`, rate(times), summarise(times).median);
  const pods = await measurePods(rounds, directory);
  row("call → first byte of the main process, milliseconds", "median", "p99");
  for (const way of ways)
    row(`  ${way}`, summarise(pods.ms[way]).median, summarise(pods.ms[way]).p99);
  const podman = summarise(pods.ms.podman);
  row("  podman run", podman.median, podman.p99);
  row("memory of the 2nd and of the 20th pod, MiB of its own", pods.second, pods.twentieth);
  const median = (way: (typeof ways)[number]): number => summarise(pods.ms[way]).median;
  return lastLine("image", {
    import_mb_s: rate(figures.podnet),
    import_ratio: rate(figures.podnet) / rate(figures.umoci),
    cold_ms: median("cold"),
    clone_ms: median("template"),
    pool_ms: median("pool"),
    podman_ratio: podman.median / median("pool"),
    pod20_mib: pods.twentieth,
  });
}

console.log(await run(Number(process.argv[2] ?? 5)));
