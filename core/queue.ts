/**
 * A queue that one part fills and another iterates, once; reports when the reader falls behind and
 * catches up.
 */
export class Queue<T> implements AsyncIterable<T> {
  #items: T[] = [];
  #ended = false;
  #wake: (() => void) | undefined;
  /** Called when the reader has taken everything. */
  onDrain: (() => void) | undefined;

  get length(): number {
    return this.#items.length;
  }

  push(item: T): void {
    if (this.#ended) return;
    this.#items.push(item);
    this.#wake?.();
  }

  /** Ends the queue; queued items are still read. */
  end(): void {
    this.#ended = true;
    this.#wake?.();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for (;;) {
      for (let item = this.#items.shift(); item !== undefined; item = this.#items.shift()) {
        yield item;
      }
      this.onDrain?.();
      if (this.#ended && this.#items.length === 0) return;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        if (this.#ended || this.#items.length > 0) resolve();
      });
    }
  }
}
