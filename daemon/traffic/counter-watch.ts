import type { Clock } from "../../core/clock.ts";
import type { Log } from "../../linux/log.ts";
import type { EventRow } from "../events/store.ts";
import { WorkQueue, type WorkTime } from "../reconcile/work-queue.ts";
import { type Counted, DropReports } from "./drop-reports.ts";

/** Longest that a look may wait for changes of the host, milliseconds. */
const lookMs = 60_000;
/** A pause is so many times as long as the look before it, up to a minute: there may be much. */
const pauseOfLook = 5;
const longestPauseMs = 60_000;

export interface CounterWatchParts<Each extends Counted> {
  /** What was reported by earlier podnetds, oldest first, and by owner what it was about. */
  readonly stored: readonly EventRow[];
  readonly reportedBy: (event: EventRow) => Iterable<readonly [owner: string, Counted]>;
  readonly count: (signal: AbortSignal) => Promise<readonly Each[]>;
  /** Finds the owners of what was counted. */
  readonly ownersOf: (counted: readonly Each[]) => (each: Each) => string | undefined;
  /** Reports what is new of one owner. */
  readonly report: (some: readonly Each[]) => void;
  /** What a failed look could not do, for the log. */
  readonly failed: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Between looks, milliseconds; longer where a look takes long. */
  readonly everyMs: number;
  /** The system's unless given. */
  readonly time?: WorkTime;
}

/**
 * Looks at counters again and again, and reports what is new. What was reported is in the stored
 * events, so a restart neither loses a report nor repeats one.
 */
export class CounterWatch<Each extends Counted> implements AsyncDisposable {
  readonly #parts: CounterWatchParts<Each>;
  readonly #reports = new DropReports();
  readonly #looks: WorkQueue<"look">;
  readonly #over = new AbortController();

  constructor(parts: CounterWatchParts<Each>) {
    this.#parts = parts;
    const { stored, reportedBy, clock, log, everyMs, time } = parts;
    for (const event of stored) {
      const atMs = clock.monotonic() - Math.max(0, clock.now() - event.timeMs);
      for (const [owner, counted] of reportedBy(event)) this.#reports.note(owner, [counted], atMs);
    }
    this.#looks = new WorkQueue({
      name: "counters",
      backoff: { firstMs: everyMs, longestMs: 60_000 },
      onDegraded: (_, { error }) => log.warn({ err: error }, parts.failed),
      ...(time === undefined ? {} : { time }),
    });
    this.#again(everyMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#looks.close();
  }

  #again(afterMs: number): void {
    this.#looks.add("look", () => this.#look(), afterMs);
  }

  async #look(): Promise<void> {
    const { count, ownersOf, report, clock, everyMs } = this.#parts;
    const before = performance.now();
    const counted = await count(AbortSignal.any([this.#over.signal, AbortSignal.timeout(lookMs)]));
    const ownerOf = ownersOf(counted);
    for (const [owner, some] of this.#reports.due(counted, ownerOf, clock.monotonic())) {
      report(some);
      this.#reports.note(owner, some, clock.monotonic());
    }
    const pauseMs = Math.min(longestPauseMs, pauseOfLook * (performance.now() - before));
    this.#again(Math.max(everyMs, pauseMs));
  }
}
