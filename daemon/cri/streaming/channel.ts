import type { Duplex } from "node:stream";
import { Queue } from "../../../core/queue.ts";

/** One of the numbered or named streams of a connection, both ways. */
export interface Channel {
  /** What the peer sends, until it ends its side or is gone. */
  readonly input: AsyncIterable<Uint8Array>;
  /** Resolves when there is room for more. To a peer that is gone nothing is written. */
  write(data: Uint8Array): Promise<void>;
  /** Nothing more is written. */
  end(): void;
  /** Nothing more is read: what comes is dropped. */
  discard(): void;
}

/** A peer with its channels. */
export interface ChannelConnection {
  /** Aborted when the peer is gone. */
  readonly gone: AbortSignal;
  /** Ends it when all that was written is read, at the latest after a while. */
  close(): void;
}

/** Bytes of one channel that wait for their reader; then the connection is not read. */
const waitingBytes = 256 * 1024;

/** What a peer sends on one channel. */
export class Inbox implements AsyncIterable<Uint8Array> {
  readonly #queue = new Queue<Uint8Array>();
  #waiting = 0;
  #isClosed = false;
  #room: PromiseWithResolvers<void> | undefined;

  /** Resolves when there is room for more. */
  async push(data: Uint8Array): Promise<void> {
    if (this.#isClosed || data.length === 0) return;
    this.#waiting += data.length;
    this.#queue.push(data);
    if (this.#waiting <= waitingBytes) return;
    this.#room ??= Promise.withResolvers();
    await this.#room.promise;
  }

  /** The peer sends no more. */
  end(): void {
    this.#queue.end();
  }

  /** It is not read any more. */
  close(): void {
    this.#isClosed = true;
    this.#queue.end();
    this.#free();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    for await (const data of this.#queue) {
      this.#waiting -= data.length;
      if (this.#waiting <= waitingBytes) this.#free();
      if (!this.#isClosed) yield data;
    }
  }

  #free(): void {
    this.#room?.resolve();
    this.#room = undefined;
  }
}

/** How long a peer may leave the rest unread when all is said, milliseconds. */
const lastMs = 30_000;

/** What is sent on a connection: as fast as the peer reads. */
export class Outgoing {
  readonly #socket: Duplex;

  constructor(socket: Duplex) {
    this.#socket = socket;
  }

  async write(bytes: Uint8Array): Promise<void> {
    const socket = this.#socket;
    if (socket.destroyed || socket.writableEnded) return;
    if (socket.write(bytes)) return;
    await new Promise<void>((resolve) => {
      const over = (): void => {
        socket.off("drain", over);
        socket.off("close", over);
        resolve();
      };
      socket.once("drain", over);
      socket.once("close", over);
    });
  }

  /** Ends the connection behind a last message. */
  end(bytes: Uint8Array): void {
    const socket = this.#socket;
    if (socket.destroyed || socket.writableEnded) return;
    socket.end(bytes);
    // With input unread the kernel would answer by a reset, which discards what the peer has not
    // read: so it is read until the peer closes, too.
    const timer = setTimeout(() => socket.destroy(), lastMs).unref();
    socket.once("close", () => clearTimeout(timer));
  }
}
