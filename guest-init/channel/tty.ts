import type { PodnetError } from "../../core/errors.ts";
import type { UnixConnection } from "../../linux/sockets/unix-socket.ts";
import { malformed } from "../protocol/fields.ts";
import { TtyDecoder, type TtyItem, encodeTtyFrame, ttyLimit } from "../protocol/tty-frame.ts";
import type { GuestTime } from "./guest-time.ts";
import type { ChannelLimits } from "./limits.ts";
import { Link } from "./link.ts";

/** Bytes of output in a frame that are worth the handling of one. */
const smallFrame = 1024;

/** Takes one stream's data; empty at its end. It is valid during the call alone. */
export type StreamSink = (data: Uint8Array) => void;

/** The tty channel: numbered streams, both ways, over one socket. */
export class Tty {
  /** Data for streams that have ended, or were an earlier daemon's. */
  strayFrames = 0;
  /** Data for streams that never were. */
  senselessFrames = 0;
  /** Undefined without such a channel: then the programs that would use it are not started. */
  readonly #link: Link<TtyItem> | undefined;
  readonly #sinks = new Map<bigint, StreamSink>();
  readonly #holders = new Set<object>();
  readonly #limits: ChannelLimits;
  /** Streams below it are an earlier daemon's, if there was one. */
  readonly #firstStream: bigint;
  readonly #inherits: boolean;
  #nextStream: bigint;
  #closed: PodnetError | undefined;

  constructor(
    connection: UnixConnection | undefined,
    options: {
      readonly limits: ChannelLimits;
      readonly time: GuestTime;
      readonly firstStream: bigint;
      /** Processes of an earlier daemon may still write to streams below the first. */
      readonly inherits: boolean;
      readonly onClose: (reason: PodnetError) => void;
      readonly onSlowed: (is: boolean) => void;
    },
  ) {
    this.#limits = options.limits;
    this.#firstStream = options.firstStream;
    this.#inherits = options.inherits;
    this.#nextStream = options.firstStream;
    if (connection === undefined) return;
    this.#link = new Link(connection, {
      name: "tty channel",
      frameMs: options.limits.frameMs,
      time: options.time,
      // Who takes them copies what it keeps.
      decoder: () => new TtyDecoder(ttyLimit.extension, { shares: true }),
      rate: options.limits.ttyRate,
      cost: (item) => this.#costOf(item),
      tooFast: options.onSlowed,
      tooFastMs: options.limits.tooFastMs,
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
    const cutOff = (reason: PodnetError): void => {
      this.close(reason);
      onClose(reason);
    };
    if (item.kind === "refused")
      return cutOff(malformed(`The guest announced a tty frame of ${item.length} bytes`));
    const sink = this.#sinks.get(item.stream);
    if (sink !== undefined) return sink(item.data);
    if (this.#mayHaveBeen(item.stream)) this.strayFrames++;
    else if (++this.senselessFrames > this.#limits.senselessFrames)
      cutOff(malformed(`The guest sends output of streams that never were, as ${item.stream}`));
  }

  #mayHaveBeen(stream: bigint): boolean {
    if (stream <= 0n || stream >= this.#nextStream) return false;
    return this.#inherits || stream >= this.#firstStream;
  }

  /**
   * A frame's cost against the guest's rate. Large frames with output that is read are paced by
   * their reader.
   */
  #costOf(item: TtyItem): number {
    if (item.kind === "refused") return 1;
    const { length } = item.data;
    if (!this.#sinks.has(item.stream)) return 1 + length / 1024;
    return length < smallFrame ? 1 : 0;
  }
}
