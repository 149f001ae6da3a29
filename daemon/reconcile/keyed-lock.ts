/**
 * Runs what bears the same key one after the other, in order of asking; different keys side by
 * side.
 */
export class KeyedLock<Key> {
  readonly #last = new Map<Key, Promise<unknown>>();

  /** Keys in use. */
  get size(): number {
    return this.#last.size;
  }

  async run<T>(key: Key, body: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key) ?? Promise.resolve();
    const mine = before.then(body, body);
    this.#last.set(key, mine);
    try {
      return await mine;
    } finally {
      if (this.#last.get(key) === mine) this.#last.delete(key);
    }
  }

  /** Resolves when nothing runs any more. */
  async idle(): Promise<void> {
    while (this.#last.size > 0) await Promise.allSettled(this.#last.values());
  }
}
