import type { Ip } from "../../core/address.ts";
import type { Clock } from "../../core/clock.ts";
import { type Rate, TokenBucket } from "../../core/token-bucket.ts";
import type { DenialOwner } from "./denial-owner.ts";
import type { Denial } from "./denials.ts";

/** Something that was just denied. */
export interface Denied extends Denial {
  /** tcp, udp, sctp, icmp, or the number in the IP header. */
  readonly protocol?: string;
  /** The other side's address. */
  readonly address?: Ip;
  /** The port that the connection was to be opened to. */
  readonly port?: number;
  /** The name that a connection said, or a question was about. */
  readonly name?: string;
}

/** A denial as it is shown. */
export interface Verdict extends Denied {
  readonly timeMs: number;
  readonly owner: DenialOwner;
}

/** Of verdicts that a reader did not get: it read too slowly, or podnetd did. */
export interface Lost {
  readonly lost: number;
}

export interface VerdictsParts {
  readonly clock: Clock;
  /** Undefined for a pod or container that has gone. */
  readonly ownerOf: (holder: string) => DenialOwner | undefined;
}

/** Kept of each pod or container. */
const kept = 64;
/** A reader's verdicts that wait for it. */
const mostWaiting = 256;
/** Of one pod or container. */
const rate: Rate = { perSecond: 20, burst: 40 };

const usualRings = 64;

interface Ring {
  readonly bucket: TokenBucket;
  readonly last: Verdict[];
}

/**
 * The last things that policies denied, of each pod and container by itself, and those that follow.
 * A pod that is denied much fills its own ring at its own rate; `Denials` counts all.
 */
export class Verdicts {
  readonly #parts: VerdictsParts;
  readonly #rings = new Map<string, Ring>();
  /** Rings from which on those are looked for whose holder has gone. */
  #most = usualRings;
  readonly #readers = new Set<(verdict: Verdict) => void>();
  readonly #watches = new Set<(lost: number) => void>();

  constructor(parts: VerdictsParts) {
    this.#parts = parts;
  }

  add(denied: Denied): void {
    const { clock, ownerOf } = this.#parts;
    const ring = this.#rings.get(denied.holder) ?? this.#open(denied.holder);
    if (!ring.bucket.take()) return;
    const owner = ownerOf(denied.holder);
    if (owner === undefined) return;
    const verdict = { ...denied, timeMs: clock.now(), owner };
    if (ring.last.push(verdict) > kept) ring.last.shift();
    for (const read of this.#readers) read(verdict);
  }

  /** So many were not read, of whichever holders: those who watch get the number. */
  drop(count: number): void {
    for (const lose of this.#watches) lose(count);
  }

  /** Calls back with each from now on, until it is disposed of. */
  follow(read: (verdict: Verdict) => void): Disposable {
    this.#readers.add(read);
    return { [Symbol.dispose]: () => void this.#readers.delete(read) };
  }

  /** The last ones of these holders, or of all, oldest first. */
  last(holders: readonly string[] | undefined): Verdict[] {
    return [...this.#rings.values()]
      .flatMap(({ last }) => last)
      .filter(({ holder }) => holders?.includes(holder) ?? true)
      .toSorted((one, other) => one.timeMs - other.timeMs);
  }

  /**
   * The last ones of these holders, or of all, and those that follow until the signal aborts. What
   * comes faster than it is read is dropped, and counted, with all that podnetd itself dropped.
   */
  async *watch(
    holders: readonly string[] | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<Verdict | Lost> {
    const queue = this.last(holders);
    let lost = 0;
    let wake = (): void => {};
    using _reader = this.follow((verdict) => {
      if (holders?.includes(verdict.holder) === false) return;
      if (queue.length < mostWaiting) queue.push(verdict);
      else lost++;
      wake();
    });
    const lose = (count: number): void => {
      lost += count;
      wake();
    };
    this.#watches.add(lose);
    const stop = (): void => wake();
    signal.addEventListener("abort", stop, { once: true });
    try {
      while (!signal.aborted) {
        const next = queue.shift();
        if (next !== undefined) yield next;
        else if (lost > 0) {
          const count = lost;
          lost = 0;
          yield { lost: count };
        } else {
          const { promise, resolve } = Promise.withResolvers<void>();
          wake = resolve;
          await promise;
        }
      }
    } finally {
      this.#watches.delete(lose);
      signal.removeEventListener("abort", stop);
    }
  }

  /** Rings of pods that have gone make room when there are many. */
  #open(holder: string): Ring {
    if (this.#rings.size >= this.#most) {
      for (const known of this.#rings.keys())
        if (this.#parts.ownerOf(known) === undefined) this.#rings.delete(known);
      this.#most = Math.max(usualRings, 2 * this.#rings.size);
    }
    const ring: Ring = { bucket: new TokenBucket(rate, this.#parts.clock), last: [] };
    this.#rings.set(holder, ring);
    return ring;
  }
}
