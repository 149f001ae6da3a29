interface Entry {
  readonly at: number;
  readonly body: () => void;
}

/** Virtual time, and what happens in it: a heap by time. Milliseconds. */
export class Agenda {
  now = 0;
  readonly #heap: Entry[] = [];

  /** Nothing is to happen any more. */
  get idle(): boolean {
    return this.#heap.length === 0;
  }

  after(ms: number, body: () => void): void {
    const heap = this.#heap;
    const entry = { at: this.now + ms, body };
    let place = heap.push(entry) - 1;
    while (place > 0) {
      const above = (place - 1) >> 1;
      const other = heap[above] as Entry;
      if (other.at <= entry.at) break;
      heap[place] = other;
      place = above;
    }
    heap[place] = entry;
  }

  /** Lets time pass until this is so. */
  run(isOver: () => boolean): void {
    while (!isOver()) {
      const next = this.#next();
      if (next === undefined) throw new Error("A task waits for ever");
      this.now = next.at;
      next.body();
    }
  }

  #next(): Entry | undefined {
    const heap = this.#heap;
    const [first] = heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return first;
    let place = 0;
    for (;;) {
      let below = 2 * place + 1;
      if (below >= heap.length) break;
      if ((heap[below + 1]?.at ?? Infinity) < (heap[below]?.at ?? 0)) below++;
      const other = heap[below] as Entry;
      if (other.at >= last.at) break;
      heap[place] = other;
      place = below;
    }
    heap[place] = last;
    return first;
  }
}
