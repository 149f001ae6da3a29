import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { connect as connectTls, type ConnectionOptions } from "node:tls";
import {
  ack,
  endHeaders,
  endStream,
  frame,
  framesIn,
  literal,
  preface,
  type as kind,
} from "./frames.ts";

type Frame = ReturnType<typeof framesIn>["frames"][number];

/** A request as it is written, frame by frame. */
export interface Asked {
  readonly path: string;
  readonly type: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * A client of HTTP/2 that sends a request's headers and data when it is told to, and keeps the
 * frames that come.
 */
export class FrameClient implements Disposable {
  readonly #socket: Socket;
  readonly #came: Frame[] = [];
  #bytes: Buffer = Buffer.alloc(0);
  #next = 1;
  #heard = Promise.withResolvers<void>();

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("error", () => {});
    socket.on("data", (chunk: Buffer) => this.#take(chunk));
    // Large windows, so that no answer waits for them.
    socket.write(Buffer.concat([preface, frame(kind.window, 0, 0, Buffer.from([0x3f, 0, 0, 0]))]));
  }

  static unix(path: string): FrameClient {
    return new FrameClient(connect(path));
  }

  static async tls(options: ConnectionOptions): Promise<FrameClient> {
    const socket = connectTls({ ...options, ALPNProtocols: ["h2"] });
    await once(socket, "secureConnect");
    return new FrameClient(socket);
  }

  /** Sends a request's headers; its stream. */
  ask({ path, type, headers = {} }: Asked, ...more: readonly Buffer[]): number {
    const stream = this.#next;
    this.#next += 2;
    const fields = [
      // :method POST, :scheme http
      Buffer.from([0x83, 0x86]),
      literal(":path", path),
      literal(":authority", "x"),
      literal("content-type", type),
      ...Object.entries(headers).map(([name, value]) => literal(name, value)),
    ];
    const head = frame(kind.headers, endHeaders, stream, Buffer.concat(fields));
    this.#socket.write(
      Buffer.concat([head, ...more.map((data) => frame(kind.data, 0, stream, data))]),
    );
    return stream;
  }

  /** Sends the last of a request. */
  end(stream: number, data: Buffer = Buffer.alloc(0)): void {
    this.#socket.write(frame(kind.data, endStream, stream, data));
  }

  /** Waits for so many answers to pings, one after the other. */
  async pings(count: number): Promise<void> {
    const heard = (): number =>
      this.came(0).filter((each) => each.kind === kind.ping && each.flags === ack).length;
    for (let i = 0, from = heard(); i < count; i++) {
      this.#socket.write(frame(kind.ping, 0, 0, Buffer.alloc(8)));
      await this.until(() => heard() > from + i);
    }
  }

  /** What has come on a stream; on the connection itself for 0. */
  came(stream: number): readonly Frame[] {
    return this.#came.filter((each) => each.stream === stream);
  }

  /** Whether the server has ended a stream, and not reset it. */
  ended(stream: number): boolean {
    const carries = ({ kind: each }: Frame): boolean => each === kind.data || each === kind.headers;
    return this.came(stream).some((each) => carries(each) && (each.flags & endStream) > 0);
  }

  /** The bodies of a stream's answer. */
  text(stream: number): string {
    return this.came(stream)
      .map(({ payload }) => payload.toString("latin1"))
      .join("");
  }

  /** Waits until something holds of what has come; throws after 15 s. */
  async until(met: () => boolean): Promise<void> {
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => late.reject(new Error("Not within 15 s")), 15_000);
    try {
      while (!met()) await Promise.race([this.#heard.promise, late.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    const { frames, rest } = framesIn(Buffer.concat([this.#bytes, chunk]));
    this.#bytes = rest;
    this.#came.push(...frames);
    for (const { kind: each, flags, payload } of frames)
      if (each === kind.ping && flags === 0) this.#socket.write(frame(kind.ping, ack, 0, payload));
    this.#heard.resolve();
    this.#heard = Promise.withResolvers();
  }
}
