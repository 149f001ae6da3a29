import type { Clock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import type { Log } from "../../linux/log.ts";
import type { Database, Lasting, Need } from "../store/database.ts";
import { eventBounds, eventsAfter, type EventRow, insertEvent } from "./store.ts";

/** Events a reader may lag behind before it is cut off. */
const readerLimit = 1024;

export type NewEvent = Omit<EventRow, "cursor" | "timeMs">;

/** How a change is committed, see `Database.transaction`. */
export interface CommitOptions {
  readonly lasting?: Lasting;
  readonly need?: Need;
}

/**
 * Changes of the state and the events that report them, committed together; events are sent only
 * after the commit.
 */
export class Journal {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #log: Log | undefined;
  readonly #readers = new Set<(event: EventRow) => void>();

  /** `log` receives errors of commits that count anyway. */
  constructor(db: Database, clock: Clock, log?: Log) {
    this.#db = db;
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * Runs `body` in one transaction, named `what`; its events are stored with it and sent once it is
   * durable. If an error follows the commit, the transaction still counts: an error would make the
   * caller act on a state that no row has. `body` may run twice: see `Database.transaction`.
   */
  transact(
    what: string,
    body: (emit: (event: NewEvent) => void) => void,
    { lasting, need }: CommitOptions = {},
  ): void {
    const emitted: EventRow[] = [];
    try {
      this.#db.transaction(
        () => {
          emitted.length = 0;
          body((event) => {
            emitted.push(insertEvent(this.#db, { ...event, timeMs: this.#clock.now() }));
          });
        },
        what,
        lasting,
        need,
      );
    } catch (thrown) {
      if (!this.#committed(emitted.at(-1))) throw thrown;
      this.#log?.warn({ commit: what, err: thrown }, "A commit failed and is there all the same");
    }
    for (const event of emitted) for (const report of this.#readers) report(event);
  }

  /** Nothing else writes between the transaction and this look. */
  #committed(last: EventRow | undefined): boolean {
    if (last === undefined || this.#db.inTransaction) return false;
    try {
      return this.newest === last.cursor;
    } catch {
      // A store that cannot be read either: what threw first says so.
      return false;
    }
  }

  emit(event: NewEvent, options: CommitOptions = {}): void {
    this.transact(event.kind, (emit) => emit(event), options);
  }

  /** Readers there are now. */
  get readers(): number {
    return this.#readers.size;
  }

  /** Cursor of the newest event. */
  get newest(): number {
    return eventBounds(this.#db).newest;
  }

  /**
   * Events after `after` and what follows, until the signal aborts. Throws `EVENTS_LOST` when some
   * of them are gone or the reader falls too far behind: list anew then.
   */
  async *watch(after: number, signal: AbortSignal): AsyncGenerator<EventRow> {
    const queue: EventRow[] = [];
    let wake: () => void = () => {};
    let lost = false;
    const report = (event: EventRow): void => {
      if (queue.length < readerLimit) queue.push(event);
      else lost = true;
      wake();
    };
    const stop = (): void => wake();
    this.#readers.add(report);
    signal.addEventListener("abort", stop, { once: true });
    try {
      // Read in the same turn as the reader was added: nothing falls between them, nothing comes
      // twice.
      yield* this.#stored(after);
      while (!signal.aborted) {
        if (lost) throw eventsLost();
        const next = queue.shift();
        if (next !== undefined) {
          yield next;
          continue;
        }
        const { promise, resolve } = Promise.withResolvers<void>();
        wake = resolve;
        if (!signal.aborted) await promise;
      }
    } finally {
      this.#readers.delete(report);
      signal.removeEventListener("abort", stop);
    }
  }

  /** Stored events after `after`, as of now. */
  #stored(after: number): EventRow[] {
    const { oldest, newest } = eventBounds(this.#db);
    if (after > newest || (after < newest && after + 1 < oldest)) throw eventsLost();
    return eventsAfter(this.#db, after, newest - after);
  }
}

const eventsLost = (): PodnetError =>
  new PodnetError("EVENTS_LOST", "Events between the cursor and now are gone", {
    hint: "List the pods and watch from the cursor of that list",
  });
