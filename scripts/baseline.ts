/**
 * Whether a benchmark's ratios have got worse than a committed baseline. Ratios only: both sides of
 * one come from one run, turn by turn, so that they hold on any machine. Pure.
 */

/** What is kept of a benchmark. */
export interface Baseline {
  readonly options: readonly string[];
  readonly ratios: Readonly<
    Record<string, { readonly is: number; readonly better: "more" | "less" }>
  >;
}

/** So much worse than the baseline fails. */
const mostWorse = 0.25;

/** The figures of a benchmark's last line; throws when it has none. */
export function readLastLine(name: string, output: string): Readonly<Record<string, number>> {
  const line = output.trimEnd().split("\n").at(-1) ?? "";
  const [first, ...words] = line.split(" ");
  if (first !== name) throw new Error(`The benchmark "${name}" ended with "${line}"`);
  return Object.fromEntries(
    words.map((word) => {
      const [, key = "", value = ""] = /^([^=]+)=(.+)$/.exec(word) ?? [];
      return [key, Number(value)];
    }),
  );
}

/** A ratio that has got worse; `by` is a share: 0.3 is 30 % worse. */
export interface Worse {
  readonly ratio: string;
  readonly was: number;
  readonly is: number;
  readonly by: number;
}

/**
 * What is more than a quarter worse in the median of some runs; a ratio that no run had, or that is
 * no number, is worse than anything.
 */
export function worseThan(
  { ratios }: Baseline,
  runs: readonly Readonly<Record<string, number>>[],
): readonly Worse[] {
  return Object.entries(ratios).flatMap(([ratio, { is: was, better }]) => {
    const is = medianOf(ratio, runs);
    const factor = better === "more" ? was / is : is / was;
    const by = Number.isFinite(factor) ? factor - 1 : Number.POSITIVE_INFINITY;
    return by > mostWorse ? [{ ratio, was, is, by }] : [];
  });
}

/** The median of a figure over some runs; of two it is the first. */
export function medianOf(key: string, runs: readonly Readonly<Record<string, number>>[]): number {
  const seen = runs.map((run) => run[key] ?? Number.NaN);
  if (seen.some(Number.isNaN)) return Number.NaN;
  return seen.toSorted((a, b) => a - b)[Math.floor((seen.length - 1) / 2)] ?? Number.NaN;
}
