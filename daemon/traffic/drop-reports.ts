/** Between two reports about one owner, milliseconds. */
const betweenReportsMs = 60_000;

/** What is counted, by a key of its own. */
export interface Counted {
  readonly key: string;
  readonly count: number;
}

/**
 * Chooses what to report of what is counted: each key once for as long as its count grows, and for
 * each owner at most once a minute. So reports of a guest are bounded, whatever it sends.
 */
export class DropReports {
  /** By key: what was counted when it was reported. */
  readonly #reported = new Map<string, number>();
  /** By owner: when something was reported last, monotonic milliseconds. */
  readonly #lastMs = new Map<string, number>();

  /** Something was reported: now, or by an earlier podnetd. */
  note(owner: string, counted: readonly Counted[], nowMs: number): void {
    for (const { key, count } of counted) this.#reported.set(key, count);
    this.#lastMs.set(owner, nowMs);
  }

  /**
   * What is to be reported now, by owner, of all that is counted. What has to wait is in the next
   * answer after its minute. An owner is undefined for what is of none.
   */
  due<Each extends Counted>(
    counted: readonly Each[],
    ownerOf: (each: Each) => string | undefined,
    nowMs: number,
  ): ReadonlyMap<string, readonly Each[]> {
    this.#forget(counted, nowMs);
    const due = new Map<string, Each[]>();
    for (const each of counted) {
      if (this.#reported.has(each.key)) continue;
      const owner = ownerOf(each);
      if (owner === undefined || this.#lastMs.has(owner)) continue;
      due.set(owner, [...(due.get(owner) ?? []), each]);
    }
    return due;
  }

  /** What has gone, or was made anew, begins at zero. */
  #forget(counted: readonly Counted[], nowMs: number): void {
    const now = new Map(counted.map(({ key, count }) => [key, count]));
    for (const [key, count] of this.#reported)
      if ((now.get(key) ?? 0) < count) this.#reported.delete(key);
    for (const [owner, atMs] of this.#lastMs)
      if (nowMs - atMs >= betweenReportsMs) this.#lastMs.delete(owner);
  }
}
