import type { Clock } from "../../core/clock.ts";
import { type Place, watchDefects } from "../../core/guard.ts";
import type { Log } from "../../linux/log.ts";

/** Between two lines about defects of one place, milliseconds. */
const intervalMs = 10_000;

interface Reported {
  readonly atMs: number;
  /** Defects since then. */
  unlogged: number;
}

/**
 * Logs and counts what guards report (`core/guard.ts`), until disposed of: at most one line in ten
 * seconds for each place.
 */
export class Defects implements Disposable {
  readonly #log: Log;
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #counts = new Map<Place, number>();
  readonly #reported = new Map<Place, Reported>();

  constructor(log: Log, clock: Pick<Clock, "monotonic">) {
    this.#log = log;
    this.#clock = clock;
    watchDefects((place, thrown) => this.report(place, thrown));
  }

  /** How many there have been since podnetd started, by place. */
  get counts(): ReadonlyMap<Place, number> {
    return this.#counts;
  }

  /** Counts a defect, and logs it with its stack unless one of this place was logged just now. */
  report(place: Place, err: unknown): void {
    this.#counts.set(place, (this.#counts.get(place) ?? 0) + 1);
    const reported = this.#reported.get(place);
    const now = this.#clock.monotonic();
    if (reported !== undefined && now - reported.atMs < intervalMs) {
      reported.unlogged++;
      return;
    }
    this.#reported.set(place, { atMs: now, unlogged: 0 });
    const unlogged = reported?.unlogged ?? 0;
    this.#log.error(
      { place, err, ...(unlogged === 0 ? {} : { unlogged }) },
      "Defect in podnet, please report it: the event that met it was dropped, and podnetd continues",
    );
  }

  [Symbol.dispose](): void {
    watchDefects(undefined);
  }
}
