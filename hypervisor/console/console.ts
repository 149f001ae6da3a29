import { guarded } from "../../core/guard.ts";
import { paceReading } from "../../linux/sockets/paced-socket.ts";
import type { UnixConnection } from "../../linux/sockets/unix-socket.ts";

const ringBytes = 1024 * 1024;

/**
 * The last bytes of a stream, at most 1 MiB. Followers read from the ring itself, so a slow one
 * costs nothing and misses what was overwritten.
 */
export class ConsoleRing {
  readonly #size: number;
  /** Grows with what is written, up to the size. */
  #buffer: Uint8Array = new Uint8Array(0);
  /** Bytes written since the start of the VM. */
  #total = 0;
  #closed = false;
  readonly #wakers = new Set<() => void>();

  constructor(size = ringBytes) {
    this.#size = size;
  }

  /** Returns how many unread bytes these overwrote. */
  write(bytes: Uint8Array): number {
    const lostBefore = Math.max(0, this.#total - this.#size);
    const kept = bytes.subarray(Math.max(0, bytes.length - this.#size));
    this.#total += bytes.length - kept.length;
    this.#grow(Math.min(this.#size, this.#total + kept.length));
    const at = this.#total % this.#size;
    const first = kept.subarray(0, this.#size - at);
    this.#buffer.set(first, at);
    this.#buffer.set(kept.subarray(first.length), 0);
    this.#total += kept.length;
    this.#wake();
    return Math.max(0, this.#total - this.#size) - lostBefore;
  }

  /** The stream has ended: followers end once they have read the rest. */
  close(): void {
    this.#closed = true;
    this.#wake();
  }

  /** A copy of what the ring holds. */
  tail(): Uint8Array {
    return this.#read(Math.max(0, this.#total - this.#size));
  }

  /**
   * Yields the ring's content first, in one piece that may be empty; then what follows, until the
   * signal aborts or the stream ends.
   */
  async *follow(signal: AbortSignal): AsyncGenerator<Uint8Array> {
    let at = this.#total;
    yield this.tail();
    while (!signal.aborted) {
      at = Math.max(at, this.#total - this.#size);
      if (at < this.#total) {
        const bytes = this.#read(at);
        at += bytes.length;
        yield bytes;
      } else if (this.#closed) return;
      else await this.#more(signal);
    }
  }

  #grow(needed: number): void {
    if (this.#buffer.length >= needed) return;
    const grown = new Uint8Array(Math.min(this.#size, Math.max(needed, 2 * this.#buffer.length)));
    grown.set(this.#buffer);
    this.#buffer = grown;
  }

  #read(from: number): Uint8Array {
    const bytes = new Uint8Array(this.#total - from);
    const at = from % this.#size;
    const first = this.#buffer.subarray(at, Math.min(at + bytes.length, this.#size));
    bytes.set(first);
    bytes.set(this.#buffer.subarray(0, bytes.length - first.length), first.length);
    return bytes;
  }

  #wake(): void {
    for (const wake of this.#wakers) wake();
    this.#wakers.clear();
  }

  async #more(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const wake = (): void => resolve();
    this.#wakers.add(wake);
    signal.addEventListener("abort", wake, { once: true });
    await promise;
    signal.removeEventListener("abort", wake);
    this.#wakers.delete(wake);
  }
}

/**
 * Reads a console socket into the ring while it is connected; calls `onEnd` when the connection
 * ends, and `overwritten` with the number of unread bytes that were lost.
 */
export function drainConsole(
  connection: UnixConnection,
  ring: ConsoleRing,
  { overwritten, onEnd }: { overwritten(bytes: number): void; onEnd(): void },
): void {
  // However much a guest prints, its bytes have their share of each turn of the event loop, and no
  // more.
  paceReading(connection.socket, {
    source: "qemu",
    drop: () => connection.close(),
    work: (chunk) => {
      const lost = ring.write(chunk);
      if (lost > 0) overwritten(lost);
      return { bytes: chunk.length, units: 1, tokens: 0 };
    },
  });
  // An error is followed by close.
  connection.socket.on("error", () => {});
  connection.socket.on("close", guarded("qemu", onEnd));
}
