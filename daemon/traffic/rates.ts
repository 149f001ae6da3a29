import type { CountedLink, LinkCounters } from "../../linux/rtnetlink/counters.ts";

/** Counters of a link at a moment of the monotonic clock. */
export interface Sample {
  readonly atMs: number;
  readonly link: CountedLink;
}

/** Traffic per second, between two samples. */
export type Rates = Readonly<Record<"rxBytes" | "rxPackets" | "txBytes" | "txPackets", number>>;

/** Below this the clock's own steps would show, milliseconds. */
const leastMs = 1;

/**
 * Rates between two samples; undefined when they are of different links, as after a NIC was plugged
 * anew, or when a counter went back, which means an unnoticed restart from zero.
 */
export function ratesBetween(before: Sample | undefined, now: Sample): Rates | undefined {
  if (before === undefined || before.link.index !== now.link.index) return undefined;
  const elapsedMs = now.atMs - before.atMs;
  if (elapsedMs < leastMs) return undefined;
  const grown = (name: keyof LinkCounters): bigint =>
    now.link.counters[name] - before.link.counters[name];
  const names = ["rxBytes", "rxPackets", "txBytes", "txPackets"] as const;
  if (names.some((name) => grown(name) < 0n)) return undefined;
  const rate = (name: keyof LinkCounters): number => (Number(grown(name)) * 1000) / elapsedMs;
  return {
    rxBytes: rate("rxBytes"),
    rxPackets: rate("rxPackets"),
    txBytes: rate("txBytes"),
    txPackets: rate("txPackets"),
  };
}
