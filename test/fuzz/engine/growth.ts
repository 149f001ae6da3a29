import { writeFound } from "./corpus.ts";
import { type Coverage, stepsOf } from "./coverage.ts";
import { digest, Random } from "./random.ts";
import type { Target } from "./target.ts";

/** An input that costs more than in proportion to its length. */
export interface Growth {
  readonly bytes: Uint8Array;
  /** For inputs of these lengths, these steps. */
  readonly lengths: readonly number[];
  readonly steps: readonly number[];
}

/**
 * Lengths compared, bytes: each four times the one before, so that sixteen times the work stands
 * out.
 */
const ladder = [2 * 1024, 8 * 1024, 32 * 1024] as const;
/**
 * More work than this for four times the length is out of proportion; twice, as a refusal may hide
 * one step.
 */
const most = 8;
/**
 * Fewer steps a byte than this at the greatest length are in proportion, whatever a refusal saved
 * before: quadratic work is far above.
 */
const leastPerByte = 8;

function repeated(bytes: Uint8Array, from: number, to: number, length: number): Uint8Array {
  const piece = bytes.subarray(from, to);
  const times = Math.max(1, Math.floor((length - bytes.length) / piece.length));
  return new Uint8Array(
    Buffer.concat([
      bytes.subarray(0, to),
      ...Array.from({ length: times }, () => piece),
      bytes.subarray(to),
    ]),
  );
}

/**
 * Looks for inputs on which a parser's work grows faster than their length: a piece of a known
 * input is repeated, and steps are counted by V8, not by the clock. Throws when one of them, longer
 * than others, breaks the parser. It does not see work inside of regular expressions and built-in
 * functions.
 */
export function superlinear(
  target: Target,
  corpus: readonly Uint8Array[],
  options: { readonly seed: number; readonly coverage: Coverage; readonly families: number },
): Growth | undefined {
  const random = new Random(options.seed ^ digest(Buffer.from(target.name)));
  const steps = (bytes: Uint8Array): number => {
    options.coverage.take();
    try {
      target.run(bytes);
    } catch (cause) {
      const file = writeFound("crash", target.name, bytes);
      throw new Error(`${file}: ${String(cause)}`, { cause });
    }
    return stepsOf(options.coverage.take(), target.apart);
  };
  const candidates = corpus.filter((bytes) => bytes.length > 0 && bytes.length < ladder[0] / 2);
  for (let i = 0; i < options.families && candidates.length > 0; i++) {
    const bytes = random.pick(candidates);
    const from = random.below(bytes.length);
    const to =
      from +
      1 +
      random.below(random.once(2) ? bytes.length - from : Math.min(8, bytes.length - from));
    const family = ladder.map((length) => repeated(bytes, from, to, length));
    const [small = 0, middle = 0, large = 0] = family.map(steps);
    const longest = family.at(-1)?.length ?? 0;
    if (middle > most * small && large > most * middle && large > leastPerByte * longest)
      return {
        bytes: family[0] as Uint8Array,
        lengths: family.map(({ length }) => length),
        steps: [small, middle, large],
      };
  }
  return undefined;
}
