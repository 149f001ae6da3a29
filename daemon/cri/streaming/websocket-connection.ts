import type { Duplex } from "node:stream";
import { type Channel, type ChannelConnection, Inbox, Outgoing } from "./channel.ts";
import {
  closeCode,
  encodeClose,
  encodeFrame,
  messageLimit,
  opcode,
  WebSocketDecoder,
  WebSocketError,
  type WebSocketFrame,
} from "./websocket-frames.ts";

/** How channels are messages. */
export interface ChannelStyle {
  /** The number is a digit, and the data is base64: for clients that send text alone. */
  readonly base64: boolean;
  /** The client ends a channel by a message on 255. */
  readonly closes: boolean;
}

const closesChannel = 255;
/** Data of one message, bytes. */
const messageBytes = 32 * 1024;

/** The server's end of a WebSocket, whose messages each begin with the number of a channel. */
export class WebSocketConnection implements ChannelConnection {
  readonly #socket: Duplex;
  readonly #out: Outgoing;
  readonly #style: ChannelStyle;
  readonly #inboxes: readonly Inbox[];
  readonly #gone = new AbortController();
  #parts: Buffer[] = [];
  #length = 0;
  #isClosing = false;

  /** With channels 0 to `count` - 1. `head`: bytes that came with the request. */
  constructor(socket: Duplex, head: Buffer, count: number, style: ChannelStyle) {
    this.#socket = socket;
    this.#out = new Outgoing(socket);
    this.#style = style;
    this.#inboxes = Array.from({ length: count }, () => new Inbox());
    void this.#read(head);
  }

  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  channel(number: number): Channel {
    const inbox = this.#inboxes[number] ?? new Inbox();
    let ended = false;
    return {
      input: inbox,
      write: async (data) => {
        // An empty message says that the channel is there.
        for (let from = 0; from === 0 || from < data.length; from += messageBytes)
          if (!ended && !this.#isClosing)
            await this.#out.write(this.#message(number, data.subarray(from, from + messageBytes)));
      },
      end: () => {
        ended = true;
      },
      discard: () => inbox.close(),
    };
  }

  close(): void {
    this.#end(closeCode.normal);
  }

  #end(code: number): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    for (const inbox of this.#inboxes) inbox.close();
    this.#out.end(encodeClose(code));
  }

  #message(number: number, data: Uint8Array): Buffer {
    if (this.#style.base64)
      return encodeFrame(opcode.text, Buffer.from(number + Buffer.from(data).toString("base64")));
    return encodeFrame(opcode.binary, Buffer.concat([Uint8Array.of(number), data]));
  }

  async #read(head: Buffer): Promise<void> {
    const decoder = new WebSocketDecoder();
    try {
      for (const frame of decoder.push(head)) await this.#take(frame);
      for await (const bytes of this.#socket.iterator({ destroyOnReturn: false }))
        for (const frame of decoder.push(bytes as Buffer)) await this.#take(frame);
    } catch (thrown) {
      // A peer that broke has gone.
      if (!(thrown instanceof WebSocketError)) return;
      this.#end(thrown.code);
      // What else it sends is of no use, and unread it would make the peer lose the end.
      this.#socket.resume();
    } finally {
      this.#gone.abort();
      for (const inbox of this.#inboxes) inbox.end();
      if (!this.#isClosing) this.#socket.destroy();
    }
  }

  async #take({ opcode: code, fin, data }: WebSocketFrame): Promise<void> {
    if (code === opcode.close) {
      this.#end(closeCode.normal);
      // The peer is not there any more for what is still to be said.
      this.#gone.abort();
    } else if (code === opcode.ping) await this.#out.write(encodeFrame(opcode.pong, data));
    else if (code !== opcode.pong) await this.#takePart(code, fin, data);
  }

  async #takePart(code: number, fin: boolean, data: Buffer): Promise<void> {
    if (code > opcode.binary || (code === opcode.continuation) !== this.#parts.length > 0)
      throw new WebSocketError(closeCode.protocol, "The frame is out of place");
    this.#parts.push(data);
    this.#length += data.length;
    if (this.#length > messageLimit)
      throw new WebSocketError(closeCode.tooLong, `A message has more than ${messageLimit} bytes`);
    if (!fin) return;
    const message = Buffer.concat(this.#parts);
    this.#parts = [];
    this.#length = 0;
    await this.#takeMessage(message);
  }

  async #takeMessage(message: Buffer): Promise<void> {
    const [first] = message;
    if (first === undefined) return;
    const { base64, closes } = this.#style;
    if (closes && first === closesChannel) {
      this.#inboxes[message[1] ?? closesChannel]?.end();
      return;
    }
    const rest = message.subarray(1);
    const data = base64 ? Buffer.from(rest.toString("latin1"), "base64") : rest;
    // A channel that is not there, or is the server's to write, has no reader.
    await this.#inboxes[base64 ? first - 48 : first]?.push(data);
  }
}
