import type { PodnetError } from "../../core/errors.ts";

/** How something that podnetd keeps as planned is now. */
export type Condition =
  | { readonly status: "ok" }
  | {
      readonly status: "degraded";
      /** Since when, by the monotonic clock, milliseconds. */
      readonly sinceMs: number;
      /** Attempts that failed in a row. */
      readonly attempts: number;
      /** Why the last attempt failed; undefined while it is left alone on purpose. */
      readonly error: PodnetError | undefined;
      /**
       * When it is tried again, by the monotonic clock, milliseconds; undefined where the next look
       * decides.
       */
      readonly nextMs: number | undefined;
    };

export type Degraded = Condition & { readonly status: "degraded" };

const ok: Condition = { status: "ok" };

/**
 * A condition for each key. Keys without a failure take no room. In memory alone: after a start
 * everything is tried anew.
 */
export class Conditions<Key> {
  readonly #degraded = new Map<Key, Degraded>();
  /** The error of each key that was reported last. */
  readonly #reported = new Map<Key, string>();

  get(key: Key): Condition {
    return this.#degraded.get(key) ?? ok;
  }

  isDegraded(key: Key): boolean {
    return this.#degraded.has(key);
  }

  /** All that are degraded. */
  degraded(): IterableIterator<readonly [Key, Degraded]> {
    return this.#degraded.entries();
  }

  /** An attempt failed, or (without an error) it is left alone for now. */
  fail(key: Key, error: PodnetError | undefined, nowMs: number, nextMs?: number): Degraded {
    const before = this.#degraded.get(key);
    const condition: Degraded = {
      status: "degraded",
      sinceMs: before?.sinceMs ?? nowMs,
      attempts: (before?.attempts ?? 0) + (error === undefined ? 0 : 1),
      error,
      nextMs,
    };
    this.#degraded.set(key, condition);
    return condition;
  }

  /**
   * Whether to report the error of a key: once as long as it does not change. The call marks it as
   * reported.
   */
  report(key: Key): boolean {
    const message = this.#degraded.get(key)?.error?.message;
    if (message === undefined || this.#reported.get(key) === message) return false;
    this.#reported.set(key, message);
    return true;
  }

  /** It is as planned. Answers whether it was degraded before. */
  recover(key: Key): boolean {
    this.#reported.delete(key);
    return this.#degraded.delete(key);
  }
}
