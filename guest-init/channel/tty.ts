import type { PodnetError } from "../../core/errors.ts";
import type { UnixConnection } from "../../linux/unix-socket.ts";
import { malformed } from "../protocol/fields.ts";
import { TtyDecoder, type TtyItem, encodeTtyFrame } from "../protocol/tty-frame.ts";
import type { GuestTime } from "./guest-time.ts";
import type { ChannelLimits } from "./limits.ts";
import { Link } from "./link.ts";

/** Takes one stream's data; empty at its end. */
export type StreamSink = (data: Uint8Array) => void;

/** The tty channel: numbered streams, both ways, over one socket. */
export class Tty {
  /** Data for streams nobody has: late frames of ended sessions, mostly. */
  strayFrames = 0;
  /** Undefined where there is no such channel: then nobody starts anything that would use it. */
  readonly #link: Link<TtyItem> | undefined;
  readonly #sinks = new Map<bigint, StreamSink>();
  readonly #holders = new Set<object>();
  #nextStream: bigint;
  #closed: PodnetError | undefined;

  constructor(
    connection: UnixConnection | undefined,
    options: {
      readonly limits: ChannelLimits;
      readonly time: GuestTime;
      readonly firstStream: bigint;
      readonly onClose: (reason: PodnetError) => void;
    },
  ) {
    this.#nextStream = options.firstStream;
    if (connection === undefined) return;
    this.#link = new Link(connection, {
      name: "tty channel",
      frameMs: options.limits.frameMs,
      time: options.time,
      decoder: () => new TtyDecoder(),
      listener: {
        item: (item) => this.#take(item, options.onClose),
        drained: () => {},
        closed: (reason) => {
          this.#closed = reason;
          options.onClose(reason);
        },
      },
    });
  }

  /** A number no stream has had on this channel. */
  newStream(): bigint {
    return this.#nextStream++;
  }

  listen(stream: bigint, sink: StreamSink): void {
    this.#sinks.set(stream, sink);
  }

  forget(stream: bigint): void {
    this.#sinks.delete(stream);
  }

  /** Writes one frame, empty for the end; resolves when the socket has room again. */
  async write(stream: bigint, data: Uint8Array): Promise<void> {
    const link = this.#link;
    await link?.whenDrained();
    if (this.#closed !== undefined) throw this.#closed;
    if (link?.write(encodeTtyFrame(stream, data), "tty") === false) await link.whenDrained();
    if (this.#closed !== undefined) throw this.#closed;
  }

  /** Stops reading until every holder has let go. */
  hold(holder: object): void {
    if (this.#holders.size === 0) this.#link?.pause();
    this.#holders.add(holder);
  }

  /** Whether reading is stopped. */
  get held(): boolean {
    return this.#holders.size > 0;
  }

  release(holder: object): void {
    if (this.#holders.delete(holder) && this.#holders.size === 0) this.#link?.resume();
  }

  /** The guest's end has started anew. */
  restart(): void {
    this.#link?.restart();
  }

  close(reason: PodnetError): void {
    this.#closed ??= reason;
    this.#link?.close();
  }

  #take(item: TtyItem, onClose: (reason: PodnetError) => void): void {
    if (item.kind === "refused") {
      const reason = malformed(`The guest announced a tty frame of ${item.length} bytes`);
      this.close(reason);
      onClose(reason);
      return;
    }
    const sink = this.#sinks.get(item.stream);
    if (sink === undefined) this.strayFrames++;
    else sink(item.data);
  }
}
