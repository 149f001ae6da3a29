import { TtyDecoder, encodeTtyFrame, ttyHeaderSize, ttyLimit } from "../protocol/tty-frame.ts";
import { FrameDeadline } from "./frame-deadline.ts";
import type { Loop } from "./loop.ts";
import { Port } from "./port.ts";
import type { Forwarded } from "./sys.ts";

/** Frames of one process before others have their turn: a large pipe in one. */
const framesATurn = 48;
/**
 * Read at a time: a page of the port's after the other, and one round of the engine for all of
 * them.
 */
const chunk = 64 * 1024;

export interface StreamHandlers {
  /** Data for a stream; empty at its end. Answers false when there is no such stream. */
  input(stream: bigint, data: Uint8Array): boolean;
  /** There is room for output again: the host has taken it, or is gone. */
  drained(): void;
  /** The host is gone. */
  lost(): void;
}

/** The tty channel: standard input and output of all processes, each by its stream number. */
export class Streams {
  readonly #port: Port;
  readonly #handlers: StreamHandlers;
  readonly #buffer = new Uint8Array(chunk);
  /** Output on its way into a frame. */
  #frame = new Uint8Array(ttyLimit.hyperstart);
  readonly #deadline: FrameDeadline;
  #decoder = new TtyDecoder();

  constructor(loop: Loop, find: () => string | undefined, handlers: StreamHandlers) {
    this.#handlers = handlers;
    this.#port = new Port(loop, find, {
      opened: () => undefined,
      readable: () => this.#read(),
      lost: () => {
        this.#forgetHalf();
        this.#handlers.lost();
        // Output that waited for the host is void, so there is room: processes that waited for room
        // must not wait for ever.
        this.#handlers.drained();
      },
      doubted: () => this.#forgetHalf(),
      drained: () => this.#handlers.drained(),
    });
    this.#deadline = new FrameDeadline(loop, () => this.#forgetHalf());
  }

  open(): boolean {
    return this.#port.open();
  }

  get isOpen(): boolean {
    return this.#port.isOpen;
  }

  /** The host agreed on the extension: frames may be larger than a hyperstart's. */
  extend(): void {
    if (this.#frame.length < ttyLimit.extension) this.#frame = new Uint8Array(ttyLimit.extension);
  }

  /** Whether output waits for the host: then processes are not read, and wait. */
  get full(): boolean {
    return this.#port.queued > 0;
  }

  /** Whether input waits at the host. */
  get held(): boolean {
    return !this.#port.isReading;
  }

  /** Whether input is taken; it is not while a process leaves its own unread. */
  reading(wanted: boolean): void {
    this.#port.reading(wanted);
    this.#deadline.arm(wanted && this.#decoder.pending);
  }

  /** The next byte begins a frame. */
  #forgetHalf(): void {
    this.#decoder = new TtyDecoder();
    this.#deadline.arm(false);
  }

  /** Without data: the end of the stream. */
  send(stream: bigint, data?: Uint8Array): void {
    this.#port.send(encodeTtyFrame(stream, data));
  }

  /** Ends a stream, of which `end` is the frame. */
  end(end: Uint8Array): void {
    this.#port.send(end);
  }

  /** Writes what is queued now, as far as the host takes it. */
  flush(): void {
    this.#port.flush();
  }

  /**
   * Sends what can be read of a descriptor that does not block, as data of a stream, for as long as
   * the channel is not `full`. `end` is the frame that ends the stream: the number in it is all
   * that counts. Throws `SysError` when reading fails.
   */
  forward(fd: number, end: Uint8Array): Forwarded {
    this.#frame.set(end);
    return this.#port.forward(fd, this.#frame, ttyHeaderSize, framesATurn);
  }

  #read(): void {
    const count = this.#port.read(this.#buffer);
    if (count === undefined) return;
    const items = this.#decoder.push(this.#buffer.subarray(0, count));
    this.#deadline.arm(this.#decoder.pending);
    for (const item of items) {
      const known = item.kind === "frame" && this.#handlers.input(item.stream, item.data);
      // hyperstart answers an unknown stream with its end. An end from the host gets no answer: it
      // may cross the end of a process that has just exited, and the host would receive that twice.
      const ends = item.kind === "frame" && item.data.length === 0;
      if (!known && !ends) this.send(item.stream);
    }
  }
}
