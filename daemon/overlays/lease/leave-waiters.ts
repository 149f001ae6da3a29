import { PodnetError } from "../../../core/errors.ts";

/** The callers that wait for an overlay to be left. */
export class LeaveWaiters {
  readonly #waiting = new Set<() => void>();

  /**
   * Resolves at the next `done`. Throws `CANCELLED` when the signal aborts, which ends only this
   * wait.
   */
  async wait(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const stop = (): void =>
      reject(
        new PodnetError("CANCELLED", "The request to leave the overlay was cancelled", {
          hint: "It is left when the last pod on it is gone: podnet overlay list",
        }),
      );
    this.#waiting.add(resolve);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    try {
      await promise;
    } finally {
      this.#waiting.delete(resolve);
      signal.removeEventListener("abort", stop);
    }
  }

  done(): void {
    for (const resolve of this.#waiting) resolve();
  }
}
