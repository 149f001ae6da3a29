import { joinBytes } from "../protocol/bytes.ts";
import type { ExecEvent } from "./guest.ts";
import { OutputPiece, pieceBytes } from "./output-memory.ts";

/**
 * Memory that one event costs in addition to its bytes: a guest may send its output byte by byte.
 */
const eventCost = 128;
/** Most bytes of output that are joined in memory of their own; more gets a piece. */
const joinedBytes = 4096;
/** Output from this length on gets a piece at once, if its reader gives it back. */
const largeBytes = 16 * 1024;

type Output = Exclude<ExecEvent, { readonly kind: "exit" }>;
type Waiting =
  | Extract<ExecEvent, { readonly kind: "exit" }>
  | { readonly kind: Output["kind"]; readonly data: Uint8Array }
  /** Much output, copied into a piece. */
  | { readonly kind: Output["kind"]; readonly piece: OutputPiece };

const sizeOf = (waiting: Waiting): number => {
  if (waiting.kind === "exit") return 0;
  // A piece that is not full takes as much memory.
  return "piece" in waiting ? pieceBytes : waiting.data.length;
};
const costOf = (waiting: Waiting): number => eventCost + sizeOf(waiting);

type End =
  | { readonly kind: "open" }
  | { readonly kind: "ended" }
  | { readonly kind: "failed"; readonly error: Error };

const eventOf = (waiting: Waiting): ExecEvent =>
  "piece" in waiting ? { kind: waiting.kind, data: waiting.piece.data } : waiting;

/** A copy of output, in a piece where that is worth its memory. */
function copyOf({ kind, data }: Output, from: number): Waiting {
  if (data.length < from || data.length > pieceBytes) return { kind, data: new Uint8Array(data) };
  const piece = new OutputPiece();
  piece.add(data);
  return { kind, piece };
}

/**
 * Events of one session between the channel and their single reader. Much output is in pieces,
 * whose memory a reader may give back: `OutputPiece.of`.
 */
export class ExecQueue implements AsyncIterable<ExecEvent> {
  readonly #onTaken: () => void;
  readonly #onLeft: () => void;
  #pieceFrom = Infinity;
  #events: Waiting[] = [];
  #cost = 0;
  #end: End = { kind: "open" };
  #wake: (() => void) | undefined;

  /** `onTaken`: an event was read. `onLeft`: the reader went away before the end. */
  constructor(onTaken: () => void, onLeft: () => void) {
    this.#onTaken = onTaken;
    this.#onLeft = onLeft;
  }

  /** The reader gives pieces back: output need not wait for more to get one. */
  lend(): void {
    this.#pieceFrom = largeBytes;
  }

  /** Bytes held, bookkeeping included. */
  get cost(): number {
    return this.#cost;
  }

  /** The bytes of output are copied. */
  push(event: ExecEvent): void {
    if (this.#end.kind !== "open") return;
    if (event.kind === "exit") {
      this.#add(event);
      this.#end = { kind: "ended" };
    } else if (!this.#join(event)) this.#add(copyOf(event, this.#pieceFrom));
    this.#wake?.();
  }

  #add(waiting: Waiting): void {
    this.#events.push(waiting);
    this.#cost += costOf(waiting);
  }

  /** Puts output behind what is last in the queue: a message each would cost its readers more. */
  #join({ kind, data }: Output): boolean {
    const last = this.#events.at(-1);
    if (last === undefined || last.kind === "exit" || last.kind !== kind) return false;
    if ("piece" in last) return last.piece.add(data);
    if (last.data.length + data.length > pieceBytes) return false;
    this.#events.pop();
    this.#cost -= costOf(last);
    this.#add(copyOf({ kind, data: joinBytes([last.data, data]) }, joinedBytes + 1));
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
        for (let next = this.#events.shift(); next !== undefined; next = this.#events.shift()) {
          this.#cost -= costOf(next);
          this.#onTaken();
          yield eventOf(next);
        }
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
