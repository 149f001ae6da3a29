import { joinBytes } from "../../../guest-init/protocol/bytes.ts";

/** What a reader gets of a program's output, in order. */
export type OutputPart =
  | { readonly kind: "stdout" | "stderr"; readonly data: Uint8Array }
  /** So many bytes are no longer kept. */
  | { readonly kind: "skipped"; readonly bytes: number };

interface Piece {
  readonly kind: "stdout" | "stderr";
  /** Place of its first byte in all that the program wrote. */
  readonly at: number;
  data: Uint8Array;
}

/** Memory that a piece takes beyond its bytes. */
const pieceCost = 128;
/** Little output is joined up to this length: a guest may write byte by byte. */
const joinedBytes = 4096;
/** Memory for one program's output, bytes. */
export const keptBytes = 64 * 1024;

/**
 * The end of a program's output, in bounded memory. Each reader has a place of its own and never
 * holds up the program: one that is too slow learns how much it missed.
 */
export class KeptOutput {
  #pieces: Piece[] = [];
  #cost = 0;
  #written = 0;
  #ended = false;
  #change = Promise.withResolvers<void>();

  /** Bytes that the program has written, those no longer kept included. */
  get written(): number {
    return this.#written;
  }

  push(kind: "stdout" | "stderr", data: Uint8Array): void {
    const last = this.#pieces.at(-1);
    if (last?.kind === kind && last.data.length + data.length <= joinedBytes) {
      last.data = joinBytes([last.data, data]);
      this.#cost += data.length;
    } else {
      // A copy: a frame may be a part of all that was read with it.
      this.#pieces.push({ kind, at: this.#written, data: data.slice() });
      this.#cost += pieceCost + data.length;
    }
    this.#written += data.length;
    let gone = 0;
    for (const piece of this.#pieces) {
      if (this.#cost <= keptBytes) break;
      this.#cost -= pieceCost + piece.data.length;
      gone++;
    }
    if (gone > 0) this.#pieces.splice(0, gone);
    this.#changed();
  }

  /** There will be no more. */
  end(): void {
    this.#ended = true;
    this.#changed();
  }

  /** What is kept, then what follows, up to the end; without `follow` what is kept alone. */
  async *read({ follow, signal }: { readonly follow: boolean; readonly signal: AbortSignal }) {
    let at = 0;
    const upTo = follow ? Infinity : this.#written;
    while (!signal.aborted) {
      const change = this.#change.promise;
      const part = at < upTo ? this.#next(at, upTo) : undefined;
      if (part !== undefined) {
        at += part.kind === "skipped" ? part.bytes : part.data.length;
        yield part;
      } else if (this.#ended || at >= upTo) return;
      else await orAborted(change, signal);
    }
  }

  /** What comes at this place, undefined while there is nothing yet. */
  #next(at: number, upTo: number): OutputPart | undefined {
    const first = this.#pieces[0]?.at ?? this.#written;
    if (at < first) return { kind: "skipped", bytes: Math.min(first, upTo) - at };
    const piece = this.#pieces.find((each) => at < each.at + each.data.length);
    if (piece === undefined) return undefined;
    return { kind: piece.kind, data: piece.data.subarray(at - piece.at, upTo - piece.at) };
  }

  #changed(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers<void>();
  }
}

/** Resolves with `change`, or when `signal` is aborted, without a listener left on it. */
async function orAborted(change: Promise<void>, signal: AbortSignal): Promise<void> {
  const aborted = Promise.withResolvers<void>();
  const stop = (): void => aborted.resolve();
  signal.addEventListener("abort", stop, { once: true });
  await Promise.race([change, aborted.promise]);
  signal.removeEventListener("abort", stop);
}
