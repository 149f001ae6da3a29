/** How many durations of one kind of work are kept, and of how many kinds. */
const [mostDurations, mostKinds] = [9, 256];

/** How long work usually takes: the median of its last durations, by kind. */
export class UsualDurations {
  readonly #kept = new Map<string, number[]>();

  /** undefined until work of this kind has ended. */
  of(kind: string): number | undefined {
    const kept = this.#kept.get(kind)?.toSorted((a, b) => a - b);
    return kept?.[Math.floor(kept.length / 2)];
  }

  add(kind: string, durationMs: number): void {
    const before = this.#kept.get(kind) ?? [];
    // The kind whose last work is longest ago is forgotten first.
    this.#kept.delete(kind);
    this.#kept.set(kind, [...before.slice(1 - mostDurations), durationMs]);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > mostKinds && oldest !== undefined) this.#kept.delete(oldest);
  }
}
