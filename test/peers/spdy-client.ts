import { once } from "node:events";
import { connect } from "node:net";
import type { Duplex } from "node:stream";
import { createDeflate, constants, type Deflate } from "node:zlib";
import { setTimeout as delay } from "node:timers/promises";

/**
 * A client of Kubernetes' streams over SPDY/3.1, written from SPDY's specification and from
 * what kubectl sends, and apart from podnetd's server. Its headers are compressed without SPDY's
 * dictionary, which is allowed; those of Debian's kubectl are with it.
 */
export class SpdyClient implements Disposable {
  readonly socket: Duplex;
  readonly protocol: string;
  readonly streams = new Map<number, ClientStream>();
  pings: number[] = [];
  goneAway = false;
  readonly #deflate: Deflate = createDeflate({ flush: constants.Z_SYNC_FLUSH });
  readonly #compressed: Buffer[] = [];
  #kept = Buffer.alloc(0);
  #nextId = 1;
  #closed = false;

  private constructor(socket: Duplex, protocol: string, head: Buffer) {
    this.socket = socket;
    this.protocol = protocol;
    this.#deflate.on("data", (part: Buffer) => this.#compressed.push(part));
    socket.on("data", (bytes: Buffer) => this.#take(bytes));
    socket.on("close", () => {
      this.#closed = true;
    });
    this.#take(head);
  }

  /** Asks for a URL. Throws the answer's first line when it is refused. */
  static open(url: string, ...protocols: readonly string[]): Promise<SpdyClient> {
    const { hostname, port } = new URL(url);
    return SpdyClient.over(connect({ host: hostname, port: Number(port) }), url, ...protocols);
  }

  /** Asks over a connection that is there. */
  static async over(
    socket: Duplex,
    url: string,
    ...protocols: readonly string[]
  ): Promise<SpdyClient> {
    const { hostname, pathname } = new URL(url);
    socket.on("error", () => {});
    const versions = protocols.map((each) => `X-Stream-Protocol-Version: ${each}`);
    socket.write(
      [
        `POST ${pathname} HTTP/1.1`,
        `Host: ${hostname}`,
        "Connection: Upgrade",
        "Upgrade: SPDY/3.1",
        "Content-Length: 0",
        ...versions,
        "",
        "",
      ].join("\r\n"),
    );
    let answer = Buffer.alloc(0);
    while (!answer.includes("\r\n\r\n")) {
      const [bytes] = (await once(socket, "data")) as [Buffer];
      answer = Buffer.concat([answer, bytes]);
    }
    const end = answer.indexOf("\r\n\r\n");
    const lines = answer.subarray(0, end).toString().split("\r\n");
    if (lines[0]?.startsWith("HTTP/1.1 101 ") !== true) {
      socket.destroy();
      throw new Error(lines[0]);
    }
    const protocol = lines.find((line) => /^x-stream-protocol-version:/i.test(line)) ?? "";
    return new SpdyClient(socket, protocol.split(": ")[1] ?? "", answer.subarray(end + 4));
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** Opens a stream, and waits for the reply. */
  async stream(headers: Readonly<Record<string, string>>): Promise<ClientStream> {
    const id = this.#nextId;
    this.#nextId += 2;
    const stream = new ClientStream(id, this);
    this.streams.set(id, stream);
    await this.openRaw(id, headers);
    await stream.opened;
    return stream;
  }

  /** Sends an opening as it is. */
  async openRaw(id: number, headers: Readonly<Record<string, string>>): Promise<void> {
    const entries = Object.entries(headers);
    const block = await this.#compress(
      Buffer.concat([number(entries.length), ...entries.flat().flatMap((text) => counted(text))]),
    );
    const payload = Buffer.concat([number(id), number(0), Buffer.alloc(2), block]);
    this.control(1, payload);
  }

  /** Compresses anything as the next headers. */
  async compressed(bytes: Buffer): Promise<Buffer> {
    return await this.#compress(bytes);
  }

  control(type: number, payload: Buffer, flags = 0): void {
    const head = Buffer.from([0x80, 3, 0, type, flags, 0, 0, 0]);
    head.writeUIntBE(payload.length, 5, 3);
    this.socket.write(Buffer.concat([head, payload]));
  }

  data(id: number, bytes: Uint8Array, fin = false): boolean {
    const head = Buffer.alloc(8);
    head.writeUInt32BE(id, 0);
    head.writeUInt8(fin ? 1 : 0, 4);
    head.writeUIntBE(bytes.length, 5, 3);
    return this.socket.write(Buffer.concat([head, bytes]));
  }

  [Symbol.dispose](): void {
    this.socket.destroy();
    this.#deflate.destroy();
  }

  async #compress(bytes: Buffer): Promise<Buffer> {
    this.#compressed.length = 0;
    await new Promise<void>((resolve) => this.#deflate.write(bytes, () => resolve()));
    await new Promise<void>((resolve) => this.#deflate.flush(constants.Z_SYNC_FLUSH, resolve));
    while (this.#compressed.length === 0) await delay(1);
    return Buffer.concat(this.#compressed);
  }

  #take(bytes: Buffer): void {
    this.#kept = Buffer.concat([this.#kept, bytes]);
    while (this.#kept.length >= 8) {
      const length = this.#kept.readUIntBE(5, 3);
      if (this.#kept.length < 8 + length) return;
      const head = this.#kept.subarray(0, 8);
      const payload = this.#kept.subarray(8, 8 + length);
      this.#kept = this.#kept.subarray(8 + length);
      if (head.readUInt8(0) < 0x80)
        this.streams.get(head.readUInt32BE(0))?.took(payload, head.readUInt8(4) === 1);
      else this.#takeControl(head.readUInt16BE(2), payload);
    }
  }

  #takeControl(type: number, payload: Buffer): void {
    const id = payload.length >= 4 ? payload.readUInt32BE(0) : 0;
    if (type === 2) this.streams.get(id)?.replied();
    else if (type === 3) this.streams.get(id)?.wasReset(payload.readUInt32BE(4));
    else if (type === 6) this.pings.push(id);
    else if (type === 7) this.goneAway = true;
  }
}

/** One stream of a client's. */
export class ClientStream {
  readonly id: number;
  readonly #client: SpdyClient;
  readonly #opened = Promise.withResolvers<void>();
  readonly opened = this.#opened.promise;
  readonly #ended = Promise.withResolvers<void>();
  /** Resolves when the server writes no more. */
  readonly ended = this.#ended.promise;
  readonly parts: Buffer[] = [];
  resetBy: number | undefined;

  constructor(id: number, client: SpdyClient) {
    this.id = id;
    this.#client = client;
  }

  get text(): string {
    return Buffer.concat(this.parts).toString();
  }

  write(data: Uint8Array | string): boolean {
    return this.#client.data(this.id, Buffer.from(data));
  }

  end(): void {
    this.#client.data(this.id, Buffer.alloc(0), true);
  }

  replied(): void {
    this.#opened.resolve();
  }

  wasReset(status: number): void {
    this.resetBy = status;
    this.#opened.resolve();
    this.#ended.resolve();
  }

  took(data: Buffer, fin: boolean): void {
    this.parts.push(Buffer.from(data));
    if (fin) this.#ended.resolve();
  }
}

function number(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

const counted = (text: string): Buffer[] => [number(Buffer.byteLength(text)), Buffer.from(text)];
