/**
 * Wall time that never goes back: when the clock is set back, it stands still until the clock has
 * caught up.
 */
export class MonotoneTime {
  #latest = Number.NEGATIVE_INFINITY;
  /** What is added to the clock's time to get ours. */
  #skew = 0;

  /** Our time for the clock's `now`. */
  at(now: number): number {
    checkTime(now);
    if (now + this.#skew < this.#latest) this.#skew = this.#latest - now;
    this.#latest = now + this.#skew;
    return this.#latest;
  }

  /** Takes over a moment noted on the clock, perhaps before a restart. */
  adopt(moment: number): number {
    checkTime(moment);
    const ours = moment + this.#skew;
    this.#latest = Math.max(this.#latest, ours);
    return ours;
  }

  /** The clock's time for one of ours. */
  onClock(ours: number): number {
    return ours - this.#skew;
  }
}

/** One that is endless would stop time for good. */
function checkTime(moment: number): void {
  if (!Number.isFinite(moment)) throw new RangeError(`${moment} is no time`);
}
