import { guarded } from "../../core/guard.ts";
import type { Log } from "../../linux/log.ts";

/** Between two lines about the same, milliseconds. */
const intervalMs = 10_000;

/**
 * Counts refused, cut or dropped items by their reason, and logs them: the first at once, further
 * ones in one line every ten seconds. So a flood does not flood the log, and is counted completely.
 */
export class Tally {
  readonly #log: Log;
  readonly #message: string;
  readonly #counted: (reason: string) => void;
  readonly #since = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(log: Log, message: string, counted: (reason: string) => void) {
    this.#log = log;
    this.#message = message;
    this.#counted = counted;
  }

  /** `reason` comes from a small fixed set: it becomes a label of a metric. */
  count(reason: string): void {
    this.#counted(reason);
    this.#since.set(reason, (this.#since.get(reason) ?? 0) + 1);
    if (this.#timer !== undefined) return;
    this.#report();
    this.#timer = setInterval(
      guarded("guest", () => {
        if (this.#since.size > 0) return this.#report();
        clearInterval(this.#timer);
        this.#timer = undefined;
      }),
      intervalMs,
    ).unref();
  }

  /** Says what has not been said yet. */
  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    if (this.#since.size > 0) this.#report();
  }

  #report(): void {
    this.#log.warn({ counts: Object.fromEntries(this.#since) }, this.#message);
    this.#since.clear();
  }
}
