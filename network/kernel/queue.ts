import { throwIfAborted } from "../../core/aborting.ts";

/**
 * Runs tasks one after the other, in the order they were handed in. A task that fails does not hold
 * up the next; one whose signal aborts while it waits is not started.
 */
export class SerialQueue {
  #tail: Promise<unknown> = Promise.resolve();

  run<T>(task: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const result = this.#tail.then(() => {
      throwIfAborted(signal, "A change of the host's network");
      return task();
    });
    this.#tail = result.catch(() => {});
    return result;
  }

  /** Resolves when everything handed in so far has ended. */
  async idle(): Promise<void> {
    await this.#tail;
  }
}
