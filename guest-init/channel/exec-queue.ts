import { joinBytes } from "../protocol/bytes.ts";
import type { ExecEvent } from "./guest.ts";

/**
 * Memory that one event costs in addition to its bytes: a guest may send its output byte by byte.
 */
const eventCost = 128;
/** Most bytes of output that are joined to one event. */
const joinedBytes = 4096;
/**
 * Most bytes of output that leave the queue as one event: each costs its readers more than a copy
 * of that many bytes.
 */
const pieceBytes = 128 * 1024;
const costOf = (event: ExecEvent): number =>
  eventCost + (event.kind === "exit" ? 0 : event.data.length);

type End =
  | { readonly kind: "open" }
  | { readonly kind: "ended" }
  | { readonly kind: "failed"; readonly error: Error };

/** Output of one stream that waits in a row; at least one event. */
function alikeFrom(events: readonly ExecEvent[], from: number): readonly ExecEvent[] {
  const kind = events[from]?.kind;
  let length = 0;
  let to = from;
  for (let event = events[to]; event?.kind === kind && event !== undefined; event = events[to]) {
    length += event.kind === "exit" ? 0 : event.data.length;
    if (to > from && length > pieceBytes) break;
    to++;
  }
  return events.slice(from, to);
}

/** One event with all the output of some that are alike. */
function joined(alike: readonly ExecEvent[]): ExecEvent {
  const first = alike[0] as ExecEvent;
  if (first.kind === "exit" || alike.length === 1) return first;
  const parts = alike.flatMap((event) => (event.kind === "exit" ? [] : [event.data]));
  return { kind: first.kind, data: joinBytes(parts) };
}

/** Events of one session between the channel and their single reader. */
export class ExecQueue implements AsyncIterable<ExecEvent> {
  readonly #onTaken: () => void;
  readonly #onLeft: () => void;
  #events: ExecEvent[] = [];
  #cost = 0;
  #end: End = { kind: "open" };
  #wake: (() => void) | undefined;

  /** `onTaken`: an event was read. `onLeft`: the reader went away before the end. */
  constructor(onTaken: () => void, onLeft: () => void) {
    this.#onTaken = onTaken;
    this.#onLeft = onLeft;
  }

  /** Bytes held, bookkeeping included. */
  get cost(): number {
    return this.#cost;
  }

  push(event: ExecEvent): void {
    if (this.#end.kind !== "open") return;
    if (!this.#join(event)) {
      this.#events.push(event);
      this.#cost += costOf(event);
    }
    if (event.kind === "exit") this.#end = { kind: "ended" };
    this.#wake?.();
  }

  /**
   * Puts little output behind the little that is last in the queue: a frame each would cost its
   * readers more than its bytes.
   */
  #join(event: ExecEvent): boolean {
    const last = this.#events.at(-1);
    if (last === undefined || last.kind === "exit" || last.kind !== event.kind) return false;
    if (last.data.length + event.data.length > joinedBytes) return false;
    const data = joinBytes([last.data, event.data]);
    this.#events[this.#events.length - 1] = { kind: last.kind, data };
    this.#cost += event.data.length;
    return true;
  }

  /** Delivers the queued events, then the error, unless the exit came first. */
  fail(error: Error): void {
    if (this.#end.kind !== "open") return;
    this.#end = { kind: "failed", error };
    this.#wake?.();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ExecEvent, void, void> {
    try {
      for (;;) {
        const batch = this.#events;
        this.#events = [];
        for (let at = 0; at < batch.length; ) {
          const alike = alikeFrom(batch, at);
          at += alike.length;
          for (const event of alike) this.#cost -= costOf(event);
          this.#onTaken();
          yield joined(alike);
        }
        if (this.#events.length > 0) continue;
        if (this.#end.kind === "failed") throw this.#end.error;
        if (this.#end.kind === "ended") return;
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        this.#wake = undefined;
      }
    } finally {
      if (this.#end.kind === "open") {
        this.#end = { kind: "ended" };
        this.#events = [];
        this.#cost = 0;
        this.#onLeft();
      }
    }
  }
}
