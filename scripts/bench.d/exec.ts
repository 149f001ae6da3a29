/**
 * What running a program in a pod costs: the round trip of `true`, bytes both ways, fifty at once,
 * podnetd's memory while they stream. Alongside it, turn by turn, a bare virtio port of the same
 * machine with `cat` at its end.
 *   scripts/bench exec [ROUNDS]
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import type { ExecRequestSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { openLab } from "../../test/lab/lab.ts";
import { startPodnetd } from "../../test/lab/podnetd.ts";
import { lastLine, row, summarise } from "../measure.ts";
import { openRawPort } from "./exec/raw-port.ts";

export const description =
  "exec: round trip, throughput, fifty at once, memory; a bare virtio port";

type Input = MessageInitShape<typeof ExecRequestSchema>;
const megabytes = 100;
const bytes = megabytes * 1_000_000;
const atOnce = 50;

/** Runs a program to its end, with so many bytes as its input; answers milliseconds. */
async function timed(podnet: Podnet, args: readonly string[], input = 0): Promise<number> {
  const begin = performance.now();
  async function* requests(): AsyncGenerator<Input> {
    yield { input: { case: "start", value: { idOrName: "one", args: [...args] } } };
    const chunk = new Uint8Array(64 * 1024);
    for (let at = 0; at < input; at += chunk.length) {
      yield { input: { case: "stdin", value: chunk.subarray(0, input - at) } };
    }
  }
  let seen = 0;
  for await (const { output } of podnet.pods.exec(requests())) {
    if (output.case === "stdout") seen += output.value.length;
    if (output.case === "exit" && output.value.code !== 0) {
      throw new Error(`"${args.join(" ")}" ended with ${output.value.code}`);
    }
  }
  if (args[0] === "dd" && seen !== bytes) throw new Error(`${seen} bytes came of ${bytes}`);
  return performance.now() - begin;
}

const residentMib = (pid: number): number =>
  Number(/VmRSS:\s*(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;

/** The most memory the process has while `work` goes on, beyond what it had before, MiB. */
async function growth(pid: number, work: () => Promise<number>): Promise<[number, number]> {
  const before = residentMib(pid);
  let most = before;
  const stop = new AbortController();
  const looking = (async () => {
    while (!stop.signal.aborted) {
      most = Math.max(most, residentMib(pid));
      await delay(10, undefined, { signal: stop.signal }).catch(() => {});
    }
  })();
  const ms = await work();
  stop.abort();
  await looking;
  return [ms, most - before];
}

/** Runs the benchmark, prints its table and returns the last line. */
export async function run(rounds: number): Promise<string> {
  const directory = mkdtempSync(path.resolve(import.meta.dirname, "../../build/bench-"));
  const of = { rtt: [], out: [], in: [], many: [], grown: [] } as Record<string, number[]>;
  const raw = { echo: [], out: [], in: [] } as Record<string, number[]>;
  const seconds = (ms: number): number => megabytes / (ms / 1000);
  try {
    await using lab = await openLab("bench-");
    await using podnetd = await startPodnetd({ machine: lab.host, directory });
    using podnet = connectPodnet({ socket: podnetd.socket });
    await podnet.pods.create({ spec: { name: "one" } });
    const pid = podnetd.process.pid as number;
    await using port = await openRawPort(directory);
    // What is compiled at the first use does not count.
    for (let i = 0; i < 50; i++) await timed(podnet, ["true"]);
    for (let round = 0; round < rounds; round++) {
      for (let i = 0; i < 40; i++) of["rtt"]?.push(await timed(podnet, ["true"]));
      for (let i = 0; i < 10; i++) raw["echo"]?.push(await port.echo());
      const out = ["dd", "if=/dev/zero", "bs=50000", `count=${bytes / 50_000}`];
      const [outMs, outGrown] = await growth(pid, () => timed(podnet, out));
      of["out"]?.push(seconds(outMs));
      raw["out"]?.push(seconds(await port.out(bytes)));
      const into = ["sh", "-c", "cat > /dev/null"];
      const [inMs, inGrown] = await growth(pid, () => timed(podnet, into, bytes));
      of["in"]?.push(seconds(inMs));
      raw["in"]?.push(seconds(await port.into(bytes)));
      of["grown"]?.push(Math.max(outGrown, inGrown));
      const begin = performance.now();
      await Promise.all(Array.from({ length: atOnce }, () => timed(podnet, ["true"])));
      of["many"]?.push(performance.now() - begin);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  return report(of, raw);
}

function report(of: Record<string, number[]>, raw: Record<string, number[]>): string {
  const figure = (from: Record<string, number[]>, key: string) => summarise(from[key] ?? []);
  console.log(`${of["out"]?.length} rounds, Debian kernel, software emulation, 1 vCPU, 128 MiB`);
  row("", "median", "p99");
  const line = (title: string, { median, p99 }: ReturnType<typeof summarise>): void =>
    row(title, median, p99);
  line("exec true, API call → exit, ms", figure(of, "rtt"));
  line("a byte there and back on a bare port, ms", figure(raw, "echo"));
  line(`${megabytes} MB out, MB/s`, figure(of, "out"));
  line("the same by dd on a bare port, MB/s", figure(raw, "out"));
  line(`${megabytes} MB in, MB/s`, figure(of, "in"));
  line("the same by head on a bare port, MB/s", figure(raw, "in"));
  line(`${atOnce} at once, ms for all`, figure(of, "many"));
  line("podnetd's memory while they stream, MiB more", figure(of, "grown"));
  return lastLine("exec", {
    rtt_ms: figure(of, "rtt").median,
    rtt_p99_ms: figure(of, "rtt").p99,
    out_mbps: figure(of, "out").median,
    in_mbps: figure(of, "in").median,
    at_once_ms: figure(of, "many").median,
    out_ratio: figure(of, "out").median / figure(raw, "out").median,
    in_ratio: figure(of, "in").median / figure(raw, "in").median,
    rtt_over_bare_ms: figure(of, "rtt").median - figure(raw, "echo").median,
    rss_growth_mib: Math.max(...(of["grown"] ?? [])),
  });
}

if (import.meta.main) {
  console.log(await run(Number(process.argv[2] ?? 5)));
}
