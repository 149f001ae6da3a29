/** Values pushed from callbacks, read as a stream. */
export class PushQueue<T> {
  readonly #values: T[] = [];
  #wake: () => void = () => {};
  #ended = false;

  push(value: T): void {
    this.#values.push(value);
    this.#wake();
  }

  end(): void {
    this.#ended = true;
    this.#wake();
  }

  /** What was pushed and what follows, up to `end`. */
  async *read(): AsyncGenerator<T> {
    for (;;) {
      const next = this.#values.shift();
      if (next !== undefined) yield next;
      else if (this.#ended) return;
      else {
        const { promise, resolve } = Promise.withResolvers<void>();
        this.#wake = resolve;
        await promise;
      }
    }
  }
}
