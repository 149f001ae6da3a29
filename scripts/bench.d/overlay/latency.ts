import type { Machine } from "../../../test/lab/lab.ts";
import { row, type Summary, summarise } from "../../measure.ts";

/** Pings of one look, and seconds between them. */
const count = 500;
const gapS = "0.002";

/**
 * Milliseconds there and back between two that do nothing else, as `ping` measures them. The first
 * is left out: it finds the way.
 */
export async function latency(from: Pick<Machine, "run">, to: string): Promise<Summary> {
  const said = await from.run("ping", "-n", "-c", `${count + 1}`, "-i", gapS, "-W", "2", to);
  const times = [...said.matchAll(/time=([0-9.]+) ms/g)].map(([, time]) => Number(time));
  return summarise(times.slice(1));
}

/** Prints what pings took, by podnet and by what they are compared with. */
export function latencyRows(
  backend: string,
  summaries: Readonly<Record<string, readonly Summary[]>>,
): void {
  row(`${backend}, ping there and back, ms`, "p50", "p99");
  for (const [name, rounds] of Object.entries(summaries)) {
    const best = (of: (each: Summary) => number): string => Math.min(...rounds.map(of)).toFixed(3);
    row(
      `  ${name}, best of ${rounds.length}`,
      best(({ median }) => median),
      best(({ p99 }) => p99),
    );
  }
}
