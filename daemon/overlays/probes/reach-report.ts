import { guarded } from "../../../core/guard.ts";
import type { Log } from "../../../linux/log.ts";

/** The reachability of all peers together. */
interface Reach {
  readonly reachable: number;
  readonly unreachable: number;
  /** Some of the unreachable peers, by their keys. */
  readonly lost: readonly string[];
}

export interface ReachReportOptions {
  readonly log: Pick<Log, "info" | "warn">;
  readonly reach: () => Reach;
  /**
   * The time from the first change of a peer to the line about all, in milliseconds. Default: five
   * seconds.
   */
  readonly afterMs?: number;
}

/**
 * Reports the number of unreachable peers when it changes, in one line for all changes at about the
 * same time.
 */
export class ReachReport implements Disposable {
  readonly #options: ReachReportOptions;
  #reported = 0;
  #soon: NodeJS.Timeout | undefined;

  constructor(options: ReachReportOptions) {
    this.#options = options;
  }

  /** A peer can be reached that could not, or the other way round. */
  changed(): void {
    this.#soon ??= setTimeout(
      guarded("overlay", () => this.#report()),
      this.#options.afterMs ?? 5000,
    ).unref();
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#soon);
  }

  #report(): void {
    this.#soon = undefined;
    const { log, reach } = this.#options;
    const { reachable, unreachable, lost } = reach();
    const before = this.#reported;
    if (unreachable === before) return;
    this.#reported = unreachable;
    const all = reachable + unreachable;
    if (unreachable === 0)
      log.info({ hosts: all }, "All hosts of the overlay can be reached again");
    else
      log[unreachable > before ? "warn" : "info"](
        { hosts: all, unreachable, peers: lost },
        `${unreachable} of ${all} other hosts of the overlay cannot be reached`,
      );
  }
}
