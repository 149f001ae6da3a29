import type { Clock } from "./clock.ts";

/** A rate with a burst: tokens flow in by time, up to as many as fit. */
export interface Rate {
  readonly perSecond: number;
  /** How many fit. */
  readonly burst: number;
}

/** A token bucket, full at first. */
export class TokenBucket {
  readonly #rate: Rate;
  readonly #clock: Clock;
  #tokens: number;
  /** Of the monotonic clock, milliseconds. */
  #filledAt: number;

  constructor(rate: Rate, clock: Clock) {
    this.#rate = rate;
    this.#clock = clock;
    this.#tokens = rate.burst;
    this.#filledAt = clock.monotonic();
  }

  get perSecond(): number {
    return this.#rate.perSecond;
  }

  /** Takes one token; false when there is none. */
  take(): boolean {
    if (this.tokens < 1) return false;
    this.#tokens--;
    return true;
  }

  /** How many there are now. */
  get tokens(): number {
    const now = this.#clock.monotonic();
    const earned = ((now - this.#filledAt) * this.#rate.perSecond) / 1000;
    this.#tokens = Math.min(this.#rate.burst, this.#tokens + earned);
    this.#filledAt = now;
    return this.#tokens;
  }

  /** Takes tokens for work already done: the balance may become negative. */
  charge(count: number): void {
    this.#tokens = this.tokens - count;
  }

  /** Whether the bucket holds as much as a new one. */
  get full(): boolean {
    return this.tokens >= this.#rate.burst;
  }

  /** Milliseconds until there is a token, at least 1. */
  get waitMs(): number {
    return Math.max(1, Math.ceil(((1 - this.tokens) * 1000) / this.#rate.perSecond));
  }
}
