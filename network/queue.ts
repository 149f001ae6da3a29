import { isPodnetError, PodnetError } from "../core/errors.ts";

/** Throws what the signal was aborted with, as `CANCELLED` unless it is an error of ours already. */
export function throwIfAborted(signal: AbortSignal): void {
  if (!signal.aborted) return;
  if (isPodnetError(signal.reason)) throw signal.reason;
  throw new PodnetError("CANCELLED", "The caller gave up", { cause: signal.reason });
}

/**
 * Runs tasks one after the other, in the order they were handed in. A task that fails does not hold up the next; one
 * whose signal aborts while it waits is not started.
 */
export class SerialQueue {
  #tail: Promise<unknown> = Promise.resolve();

  run<T>(task: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const result = this.#tail.then(() => {
      throwIfAborted(signal);
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
