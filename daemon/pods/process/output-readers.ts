import { Queue } from "../../../core/queue.ts";
import type { ProcessEnd } from "../../../guest-init/protocol/main-process.ts";

/** What those who are attached to a process get. */
export type ProcessEvent =
  | { readonly kind: "stdout"; readonly data: Uint8Array }
  | { readonly kind: "stderr"; readonly data: Uint8Array }
  | { readonly kind: "end"; readonly end: ProcessEnd | undefined };

/** Output that waits for one who is attached, bytes: who is slower misses the rest. */
const waitingBytes = 4 * 1024 * 1024;

interface Reader {
  readonly queue: Queue<ProcessEvent>;
  waiting: number;
}

/** The readers of a process's output. None of them holds up the process, or the others. */
export class OutputReaders {
  readonly #readers = new Set<Reader>();
  #ended: { readonly end: ProcessEnd | undefined } | undefined;

  /** The process has written this. */
  output(stderr: boolean, data: Uint8Array): void {
    for (const each of this.#readers) {
      if (each.waiting > waitingBytes) {
        this.#readers.delete(each);
        each.queue.end();
        continue;
      }
      each.waiting += data.length;
      each.queue.push({ kind: stderr ? "stderr" : "stdout", data });
    }
  }

  /** The process has ended; how, if that was seen. */
  end(end: ProcessEnd | undefined): void {
    this.#ended = { end };
    for (const { queue } of this.#readers) queue.push({ kind: "end", end });
  }

  /**
   * Output from now on, and the end. It ends without an end when the caller reads so slowly that it
   * would miss output.
   */
  attach(signal: AbortSignal): AsyncGenerator<ProcessEvent> {
    const reader: Reader = { queue: new Queue(), waiting: 0 };
    if (this.#ended !== undefined) reader.queue.push({ kind: "end", end: this.#ended.end });
    // From this moment on, not from the first read on.
    else this.#readers.add(reader);
    return this.#events(reader, signal);
  }

  async *#events(reader: Reader, signal: AbortSignal): AsyncGenerator<ProcessEvent> {
    const stop = (): void => reader.queue.end();
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    try {
      for await (const event of reader.queue) {
        if (event.kind !== "end") reader.waiting -= event.data.length;
        yield event;
        if (event.kind === "end") return;
      }
    } finally {
      signal.removeEventListener("abort", stop);
      this.#readers.delete(reader);
    }
  }
}
