/**
 * What the command podnet costs before and besides its work: `--version`, and `list` of a podnetd
 * without pods. Alongside it Node, which runs an empty text; each round starts each once.
 *   scripts/bench cli [ROUNDS]
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import { openLab } from "../../test/lab/lab.ts";
import { startPodnetd } from "../../test/lab/podnetd.ts";
import { lastLine, row, summarise } from "../measure.ts";

export const description = "podnet --version and list, next to an empty program of Node's";

const top = path.resolve(import.meta.dirname, "../..");
const podnet = path.join(top, "bin/podnet");

/** Milliseconds from start to end of a program that has to succeed. */
function timed(program: string, args: readonly string[], env: NodeJS.ProcessEnv): number {
  const begin = performance.now();
  const { status, stderr } = spawnSync(program, args, { env });
  const ms = performance.now() - begin;
  if (status !== 0) throw new Error(`${program} ended with ${status}: ${stderr.toString()}`);
  return ms;
}

/** Runs the benchmark, prints its table and returns the last line. */
export async function run(rounds: number): Promise<string> {
  const directory = mkdtempSync(path.join(top, "build/bench-"));
  await using opened = new AsyncDisposableStack();
  opened.defer(() => rmSync(directory, { recursive: true, force: true }));
  const lab = opened.use(await openLab("cli-"));
  const daemon = opened.use(await startPodnetd({ machine: lab.host, directory }));
  const env = { ...process.env, PODNET_SOCKET: daemon.socket };
  const programs = {
    node: [process.execPath, ["-e", ""]],
    version: [podnet, ["--version"]],
    help: [podnet, ["create", "--help"]],
    list: [podnet, ["list"]],
  } as const;
  const samples = new Map<string, number[]>(Object.keys(programs).map((name) => [name, []]));
  for (let round = -2; round < rounds; round++)
    for (const [name, [program, args]] of Object.entries(programs)) {
      const ms = timed(program, args, env);
      if (round >= 0) samples.get(name)?.push(ms);
    }
  row("", "median ms", "p99 ms");
  const medians = new Map<string, number>();
  for (const [name, times] of samples) {
    const { median, p99 } = summarise(times);
    medians.set(name, median);
    row(name === "node" ? "node -e ''" : `podnet ${name}`, median, p99);
  }
  const of = (name: keyof typeof programs): number => medians.get(name) ?? Number.NaN;
  return lastLine("cli", {
    version_ms: of("version"),
    list_ms: of("list"),
    help_ms: of("help"),
    node_ms: of("node"),
    version_ratio: of("version") / of("node"),
    list_ratio: of("list") / of("node"),
  });
}

if (import.meta.main) console.log(await run(Number(process.argv[2] ?? 20)));
