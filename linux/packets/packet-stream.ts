import { abortable } from "../../core/aborting.ts";
import { type Poll, pollFd } from "../ffi/poll.ts";
import { type Frame, PacketSocket, type PacketSocketOptions } from "./packet-socket.ts";

/** Gives other work its turn, and bounds what one read holds. */
const mostFrames = 64;
const mostBytes = 256 << 10;

/**
 * The frames that pass a link, read only as fast as the reader requests them. The others wait in
 * the kernel, whose queue is bounded and which drops the rest: nothing grows in this process.
 */
export class PacketStream implements Disposable {
  readonly #socket: PacketSocket;
  readonly #poll: Poll;
  readonly #opened: DisposableStack;
  #readable = Promise.withResolvers<void>();
  #lost = 0;
  #gone = false;

  /** Throws as `PacketSocket` does. */
  constructor(options: PacketSocketOptions) {
    using opened = new DisposableStack();
    this.#socket = opened.use(new PacketSocket(options));
    this.#poll = opened.adopt(
      pollFd(this.#socket.fd, "readable", () => {
        // It would call for as long as there is something to read.
        this.#poll.stop();
        this.#readable.resolve();
      }),
      (poll) => poll.close(),
    );
    this.#poll.stop();
    this.#opened = opened.move();
  }

  /** Frames lost so far, because they were not asked for in time. */
  get lost(): number {
    return this.#lost;
  }

  /**
   * The next frames, one at least and `limit` at most; undefined when the link is gone. Throws
   * `CANCELLED`, `SYSCALL_FAILED`.
   */
  async next(limit: number, signal: AbortSignal): Promise<readonly Frame[] | undefined> {
    for (;;) {
      const frames = this.#take(Math.min(limit, mostFrames));
      this.#lost += this.#socket.takeDropped();
      if (frames.length > 0) return frames;
      if (this.#gone) return undefined;
      this.#readable = Promise.withResolvers();
      this.#poll.start();
      await abortable(this.#readable.promise, signal, "The capture").finally(() =>
        this.#poll.stop(),
      );
    }
  }

  #take(limit: number): readonly Frame[] {
    const frames: Frame[] = [];
    let bytes = 0;
    while (frames.length < limit && bytes < mostBytes) {
      const frame = this.#socket.receive();
      if (frame === "empty") break;
      if (frame === "down") {
        // It says so once. A link that has gone down may come up again.
        this.#gone ||= !this.#socket.linkIsThere();
        break;
      }
      frames.push(frame);
      bytes += frame.bytes.length;
    }
    return frames;
  }

  /** Sends a frame by the link; see `PacketSocket.send`. */
  send(frame: Uint8Array): boolean {
    return this.#socket.send(frame);
  }

  [Symbol.dispose](): void {
    this.#opened.dispose();
  }
}
