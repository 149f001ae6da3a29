import type { Fault } from "./fault.ts";

/** Quick faults that one run plants, unless it is complete. */
export const share = 16;

/**
 * The quick faults that a run with this seed plants. Seeds that follow each other, as those of days
 * do, plant the faults that follow each other: each fault has its turn within six weeks. Faults
 * that one test file notices are neighbours, because that file also runs once without a fault.
 */
export function drawFaults(faults: readonly Fault[], seed: number): readonly Fault[] {
  const quick = faults
    .filter(({ slow }) => slow !== true)
    .map((fault) => ({ fault, at: placeOf(fault.noticedBy.file) }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ fault }) => fault);
  const begin = (seed * share) % quick.length;
  return [...quick, ...quick].slice(begin, begin + share);
}

/** Files of one subject are spread over the days: a number made of the name (FNV-1a). */
function placeOf(file: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(file)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash;
}
