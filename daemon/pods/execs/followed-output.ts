import { KeptOutput } from "../../../core/kept-output.ts";

/** What a reader gets of a program's output, in order. */
export type OutputPart =
  | { readonly kind: "stdout" | "stderr"; readonly data: Uint8Array }
  /** So many bytes are no longer kept. */
  | { readonly kind: "skipped"; readonly bytes: number };

/** Memory for one program's output, bytes. */
export const keptBytes = 64 * 1024;

/**
 * The end of a program's output, in bounded memory. Each reader has a place of its own and never
 * holds up the program: one that is too slow learns how much it missed.
 */
export class FollowedOutput {
  readonly #kept = new KeptOutput(keptBytes);
  #ended = false;
  #change = Promise.withResolvers<void>();

  /** Bytes that the program has written, those no longer kept included. */
  get written(): number {
    return this.#kept.end;
  }

  push(kind: "stdout" | "stderr", data: Uint8Array): void {
    // A copy: a frame may be a part of all that was read with it.
    this.#kept.push(kind === "stderr", data.slice());
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
    const upTo = follow ? Infinity : this.written;
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
    const { start } = this.#kept;
    if (at < start) return { kind: "skipped", bytes: Math.min(start, upTo) - at };
    const piece = this.#kept.from(at);
    if (piece === undefined) return undefined;
    return { kind: piece.stderr ? "stderr" : "stdout", data: piece.data.subarray(0, upTo - at) };
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
