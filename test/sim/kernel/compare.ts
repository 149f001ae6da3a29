import { observe } from "./observation.ts";
import type { Operation } from "./sequence.ts";
import { fakeSubject, realSubject, Runner } from "./subject.ts";

/** What both said of a sequence, up to the first thing they do not agree on. */
export interface Disagreement {
  /** Position of the operation after which they differ; the end when only the firewall does. */
  readonly at: number;
  readonly real: string;
  readonly fake: string;
}

/** Carries a sequence out on both, the real one being new, and answers where they differ first. */
export async function compare(sequence: readonly Operation[]): Promise<Disagreement | undefined> {
  using real = await realSubject();
  const fake = fakeSubject();
  const [there, here] = [new Runner(real), new Runner(fake)];
  try {
    for (const [at, operation] of sequence.entries()) {
      const [said, answered] = [await there.run(operation), await here.run(operation)];
      if (said !== answered) return { at, real: said, fake: answered };
    }
    const firewall = sequence.some(({ kind }) => kind === "restore");
    const [seen, shown] = [await observe(real, firewall), await observe(fake, firewall)];
    const differs = seen.findIndex((line, i) => line !== shown[i]);
    if (differs < 0 && seen.length === shown.length) return undefined;
    const only = (a: string[], b: string[]): string =>
      a.filter((line) => !b.includes(line)).join("\n");
    return { at: sequence.length, real: only(seen, shown), fake: only(shown, seen) };
  } finally {
    await there.end();
  }
}

/** The shortest sequence found by leaving operations out that still shows a difference. */
export async function shrink(
  sequence: readonly Operation[],
): Promise<
  { readonly sequence: readonly Operation[]; readonly difference: Disagreement } | undefined
> {
  let best = sequence;
  let difference = await compare(best);
  if (difference === undefined) return undefined;
  for (let tries = 0, at = best.length - 1; at >= 0 && tries < 200; at--, tries++) {
    const shorter = best.toSpliced(at, 1);
    const found = await compare(shorter);
    if (found === undefined) continue;
    best = shorter;
    difference = found;
  }
  return { sequence: best, difference };
}
