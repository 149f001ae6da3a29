import { guarded } from "../../core/guard.ts";
import type { Clock } from "../../core/clock.ts";

/** One caller's messages that wait, and how much time it has used. */
export class TurnQueue {
  /** The one that has waited longest first. */
  readonly waiting = new Set<() => void>();
  /** Milliseconds, on a scale that all callers share. */
  used = 0;
}

/**
 * Decides whose message podnetd works at next. Messages that have arrived wait here for their turn.
 * One after the other is read, worked at and answered, as far as that needs no waiting, and the
 * time is charged to its caller. The next turn goes to the caller that has used least. So a caller
 * that asks much waits for itself, and another caller waits for one of its messages and not for all
 * of them.
 *
 * A caller that comes anew starts where the others are: what it has not used is not saved up, and
 * what it used alone is not held against it (start-time fair queueing).
 */
export class FairTurns {
  readonly #clock: Clock;
  readonly #queues = new Set<TurnQueue>();
  /** Usage of the last turn's caller before that turn. */
  #reached = 0;
  #running = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Resolves when it is this message's turn. Rejects with what `gone` makes when `over` resolves
   * before.
   */
  enter(queue: TurnQueue, over: Promise<void>, gone: () => Error): Promise<void> {
    const turn = Promise.withResolvers<void>();
    if (queue.waiting.size === 0) {
      queue.used = Math.max(queue.used, this.#reached);
      this.#queues.add(queue);
    }
    queue.waiting.add(turn.resolve);
    void over.then(() => {
      if (this.#leave(queue, turn.resolve)) turn.reject(gone());
    });
    if (!this.#running) this.#next();
    return turn.promise;
  }

  #leave(queue: TurnQueue, turn: () => void): boolean {
    const waited = queue.waiting.delete(turn);
    if (queue.waiting.size === 0) this.#queues.delete(queue);
    return waited;
  }

  #next(): void {
    this.#running = this.#queues.size > 0;
    if (!this.#running) return;
    let began: { readonly queue: TurnQueue; readonly at: number } | undefined;
    setImmediate(
      guarded("api", () => {
        const queue = this.#least();
        const [turn] = queue?.waiting ?? [];
        if (queue === undefined || turn === undefined) return;
        this.#leave(queue, turn);
        this.#reached = Math.max(this.#reached, queue.used);
        began = { queue, at: this.#clock.monotonic() };
        turn();
      }),
    );
    // Node runs all that the turn has set going by promises before this, and looks at connections
    // afterwards.
    setImmediate(
      guarded("api", () => {
        if (began !== undefined) began.queue.used += this.#clock.monotonic() - began.at;
        this.#next();
      }),
    );
  }

  #least(): TurnQueue | undefined {
    let least: TurnQueue | undefined;
    for (const queue of this.#queues)
      if (least === undefined || queue.used < least.used) least = queue;
    return least;
  }
}
