import type { CountedLink } from "../../linux/rtnetlink/counters.ts";

/** Traffic of all pods since this was made. */
export interface Totals {
  readonly rxBytes: number;
  readonly rxPackets: number;
  readonly txBytes: number;
  readonly txPackets: number;
}

const names = ["rxBytes", "rxPackets", "txBytes", "txPackets"] as const;

/**
 * Sums of counters that come and go with their links, so that the sums never fall. Traffic between
 * the last look at a link and its end is not counted, nor is traffic before the first look: an
 * earlier podnetd counted that.
 */
export class TrafficTotals {
  readonly #sums = { rxBytes: 0, rxPackets: 0, txBytes: 0, txPackets: 0 };
  #before: ReadonlyMap<string, CountedLink> | undefined;

  /**
   * Adds what has passed since the last time, and answers the sums as pods see them: what the host
   * sends, they receive.
   */
  add(now: ReadonlyMap<string, CountedLink>): Totals {
    for (const [name, { index, counters }] of this.#before === undefined ? [] : now) {
      const before = this.#before?.get(name);
      for (const each of names) {
        const from = before?.index === index ? before.counters[each] : 0n;
        this.#sums[each] += Math.max(0, Number(counters[each] - from));
      }
    }
    this.#before = now;
    const { rxBytes, rxPackets, txBytes, txPackets } = this.#sums;
    return { rxBytes: txBytes, rxPackets: txPackets, txBytes: rxBytes, txPackets: rxPackets };
  }
}
