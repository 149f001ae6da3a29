/** What benchmarks share: summaries, tables and the last line. */

/** Median and 99th percentile of samples, in the samples' unit. */
export interface Summary {
  readonly median: number;
  readonly p99: number;
  readonly count: number;
}

/** Summarises samples; the 99th percentile of few samples is their maximum. */
export function summarise(samples: readonly number[]): Summary {
  if (samples.length === 0) throw new RangeError("There is nothing to summarise");
  const sorted = Float64Array.from(samples).sort();
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] as number;
  return { median: at(0.5), p99: at(0.99), count: samples.length };
}

/** Prints a line of a table: a title and figures in columns. */
export function row(title: string, ...cells: readonly (string | number)[]): void {
  const texts = cells.map((cell) =>
    (typeof cell === "number" ? cell.toFixed(1) : cell).padStart(11),
  );
  console.log(`${title.padEnd(44)}${texts.join("")}`);
}

/** The line a benchmark ends with: `NAME key=value key=value …`. */
export function lastLine(name: string, figures: Readonly<Record<string, number>>): string {
  const text = (value: number): string => String(Number(value.toPrecision(4)));
  return [name, ...Object.entries(figures).map(([key, value]) => `${key}=${text(value)}`)].join(
    " ",
  );
}
