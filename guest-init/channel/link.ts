import { setTimeout as delay } from "node:timers/promises";
import { perform } from "../../core/effect.ts";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import type { Rate } from "../../core/token-bucket.ts";
import { PacedSocket, type Worked } from "../../linux/sockets/paced-socket.ts";
import { type UnixConnection, connectUnix } from "../../linux/sockets/unix-socket.ts";
import { abortError } from "../../core/aborting.ts";
import { guarded } from "../../core/guard.ts";
import type { GuestTime } from "./guest-time.ts";

/**
 * Connects to a socket that QEMU is about to make: retries while the path is missing or has no
 * listener. Throws `AGENT_TIMEOUT` after `connectMs`, and other errors of the connection.
 */
export async function connectWhenThere(
  path: string,
  connectMs: number,
  signal: AbortSignal,
): Promise<UnixConnection> {
  const until = performance.now() + connectMs;
  for (let pause = 5; ; pause = Math.min(2 * pause, 50)) {
    try {
      return await connectUnix(path, signal);
    } catch (error) {
      if (signal.aborted) throw abortError(signal, "Connecting to the guest");
      const errno = toPodnetError(error).details.errno;
      if (errno !== "ENOENT" && errno !== "ECONNREFUSED") throw error;
      if (performance.now() > until)
        throw new PodnetError("AGENT_TIMEOUT", `No process listens on "${path}"`, {
          cause: error,
          hint: "Look at the VM's console: QEMU may have failed to start",
        });
      await delay(pause, undefined, { signal }).catch(() => {});
    }
  }
}

/** Cuts bytes into frames; `CtlDecoder` and `TtyDecoder` are such. Items are valid until `done`. */
export interface Decoder<Item> {
  readonly pending: boolean;
  cut(bytes: Uint8Array, most: number): { readonly items: Item[]; readonly taken: number };
  /** The items have been handled. */
  done(): void;
}

interface LinkListener<Item> {
  item(item: Item): void;
  /** Bytes may be written again. */
  drained(): void;
  /** Once, whatever the cause; not after `close`. */
  closed(reason: PodnetError): void;
}

export interface LinkOptions<Item> {
  /** For messages: `control channel`. */
  readonly name: string;
  readonly frameMs: number;
  readonly time: GuestTime;
  readonly decoder: () => Decoder<Item>;
  readonly listener: LinkListener<Item>;
  /** The rate at which the guest may send. */
  readonly rate: Rate;
  /** A frame's cost against that rate. */
  readonly cost: (item: Item) => number;
  /** The guest has been slowed down for a while (true), or no longer is (false). */
  readonly tooFast: (is: boolean) => void;
  readonly tooFastMs: number;
}

/**
 * One socket to the guest, frames in and bytes out. A frame that has begun must come to its end in
 * time.
 */
export class Link<Item> {
  readonly #connection: UnixConnection;
  readonly #options: LinkOptions<Item>;
  readonly #paced: PacedSocket;
  #decoder: Decoder<Item>;
  #frameTimer: Disposable | undefined;
  #closed = false;
  #drain = Promise.withResolvers<void>();

  constructor(connection: UnixConnection, options: LinkOptions<Item>) {
    this.#connection = connection;
    this.#options = options;
    this.#decoder = options.decoder();
    const socket = connection.readInto((bytes) => this.#paced.take(bytes));
    // A frame that cannot be handled closes the guest's channel.
    const drop = (): void => this.#lost();
    this.#paced = new PacedSocket(socket, {
      given: true,
      source: "guest",
      drop,
      work: (bytes, most) => this.#take(bytes, most),
      rate: options.rate,
      tooFast: options.tooFast,
      tooFastMs: options.tooFastMs,
    });
    const drained = (): void => {
      this.#releaseWriters();
      if (!this.#closed) options.listener.drained();
    };
    const lost = (cause?: unknown): void => this.#lost(cause instanceof Error ? cause : undefined);
    socket.on("drain", guarded("guest", drained, drop));
    socket.on("error", guarded("guest", lost));
    socket.on(
      "close",
      guarded("guest", () => this.#lost()),
    );
  }

  /**
   * Writes, or keeps in memory what does not fit: false asks to wait for `drained`. `what` names
   * the bytes.
   */
  write(bytes: Uint8Array, what: string): boolean {
    const { socket } = this.#connection;
    if (this.#closed) return false;
    try {
      return perform("channel", what, () => socket.write(bytes));
    } catch (error) {
      // As a write ends that the kernel refuses: the socket says so later, and is closed.
      socket.destroy(toPodnetError(error));
      return false;
    }
  }

  /** Whether earlier writes are still in memory. */
  get congested(): boolean {
    return this.#connection.socket.writableNeedDrain;
  }

  /** Resolves at the next moment the socket takes bytes again, or is closed. */
  whenDrained(): Promise<void> {
    return this.congested && !this.#closed ? this.#drain.promise : Promise.resolve();
  }

  /** Stops reading; the guest is held back by its own full buffers. */
  pause(): void {
    this.#paced.pause();
    this.#stopFrameTimer();
  }

  resume(): void {
    if (this.#closed) return;
    this.#paced.resume();
    if (this.#decoder.pending) this.#startFrameTimer();
  }

  /** Forgets a frame half read: its sender has started anew. */
  restart(): void {
    this.#decoder = this.#options.decoder();
    this.#stopFrameTimer();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#stopFrameTimer();
    this.#connection.close();
    this.#releaseWriters();
  }

  #take(bytes: Uint8Array, most: number): Worked {
    const decoder = this.#decoder;
    const { items, taken } = decoder.cut(bytes, most);
    // A frame that ended restarts the clock for the one that began behind it.
    if (items.length > 0 || !decoder.pending) this.#stopFrameTimer();
    if (decoder.pending) this.#startFrameTimer();
    let tokens = 0;
    for (const item of items) {
      if (this.#closed) break;
      tokens += this.#options.cost(item);
      this.#options.listener.item(item);
    }
    decoder.done();
    return { bytes: taken, units: items.length, tokens };
  }

  #startFrameTimer(): void {
    this.#frameTimer ??= this.#options.time.after(this.#options.frameMs, () => {
      const timer = this.#frameTimer;
      // The rest may lie in the socket, unread because this process was busy: look once more first.
      setImmediate(
        guarded("guest", () => {
          if (timer === undefined || this.#frameTimer !== timer) return;
          this.#frameTimer = undefined;
          // Or because the guest may not be read yet.
          if (this.#paced.paused) this.#startFrameTimer();
          else this.#fail(this.#unfinished());
        }),
      );
    });
  }

  #unfinished(): PodnetError {
    const { name, frameMs } = this.#options;
    return new PodnetError(
      "AGENT_PROTOCOL",
      `The guest began a frame on its ${name} and did not finish it in ${frameMs} ms`,
    );
  }

  #stopFrameTimer(): void {
    this.#frameTimer?.[Symbol.dispose]();
    this.#frameTimer = undefined;
  }

  #lost(cause?: Error): void {
    this.#fail(
      new PodnetError("AGENT_DISCONNECTED", `The guest's ${this.#options.name} was closed`, {
        cause,
      }),
    );
  }

  #fail(reason: PodnetError): void {
    if (this.#closed) return;
    this.close();
    this.#options.listener.closed(reason);
  }

  #releaseWriters(): void {
    this.#drain.resolve();
    this.#drain = Promise.withResolvers<void>();
  }
}
