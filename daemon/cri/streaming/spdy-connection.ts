import type { Duplex } from "node:stream";
import { Queue } from "../../../core/queue.ts";
import { type Channel, type ChannelConnection, Inbox, Outgoing } from "./channel.ts";
import {
  encodeData,
  encodeGoAway,
  encodePing,
  encodeReply,
  encodeReset,
  resetStatus,
  SpdyDecoder,
  SpdyError,
  type SpdyFrame,
} from "./spdy-frames.ts";
import { emptyHeaders, HeaderReader } from "./spdy-headers.ts";

/** Streams of one connection at a time: those of 256 forwarded connections. */
const mostStreams = 512;
/** Data of one frame, bytes: others have their turn between two. */
const frameBytes = 32 * 1024;

/** A stream that the peer has opened. */
export interface SpdyStream extends Channel {
  readonly id: number;
  readonly headers: ReadonlyMap<string, string>;
  /** Ends it both ways. */
  reset(): void;
}

interface Open {
  readonly inbox: Inbox;
  /** Both ends may write. */
  peerEnded: boolean;
  ended: boolean;
}

/**
 * The server's end of a SPDY/3.1 connection, as spdystream has it, which all clients of Kubernetes
 * use: the client opens all streams, and no end has a window, so that a stream whose input is not
 * read holds up the others.
 */
export class SpdyConnection implements ChannelConnection {
  /** Streams in the order of their coming, until the peer opens no more. */
  readonly opened = new Queue<SpdyStream>();
  readonly #socket: Duplex;
  readonly #out: Outgoing;
  readonly #headers = new HeaderReader();
  readonly #streams = new Map<number, Open>();
  readonly #gone = new AbortController();
  #last = 0;
  #hasReplied = false;
  #isClosing = false;

  /** `head`: bytes that came with the request. Throws nothing: an error ends it. */
  constructor(socket: Duplex, head: Buffer) {
    this.#socket = socket;
    this.#out = new Outgoing(socket);
    void this.#read(head);
  }

  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  close(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    for (const { inbox } of this.#streams.values()) inbox.close();
    this.#out.end(encodeGoAway(this.#last));
  }

  async #read(head: Buffer): Promise<void> {
    const decoder = new SpdyDecoder();
    try {
      for (const frame of decoder.push(head)) await this.#take(frame);
      for await (const bytes of this.#socket.iterator({ destroyOnReturn: false }))
        for (const frame of decoder.push(bytes as Buffer)) await this.#take(frame);
    } catch (thrown) {
      // A peer that broke has gone; one that sends nonsense is sent away.
      if (thrown instanceof SpdyError) this.#socket.destroy();
    } finally {
      this.#over();
    }
  }

  #over(): void {
    this.#gone.abort();
    this.opened.end();
    for (const { inbox } of this.#streams.values()) inbox.end();
    this.#streams.clear();
    this.#headers[Symbol.dispose]();
    if (!this.#isClosing) this.#socket.destroy();
  }

  async #take(frame: SpdyFrame): Promise<void> {
    switch (frame.kind) {
      case "data": {
        const stream = this.#streams.get(frame.stream);
        // Of a stream that has ended: it was on its way.
        if (stream === undefined || stream.peerEnded) return;
        await stream.inbox.push(frame.data);
        if (frame.fin) this.#peerEnded(frame.stream, stream);
        return;
      }
      case "open":
        return this.#open(frame);
      // All headers of a connection are one compressed text.
      case "reply":
      case "headers":
        await this.#headers.read(frame.block);
        return;
      case "reset":
        this.#streams.get(frame.stream)?.inbox.end();
        this.#streams.delete(frame.stream);
        return;
      case "ping":
        // An even one is an answer to one of ours, of which there are none.
        if (frame.id % 2 === 1) await this.#out.write(encodePing(frame.id));
        return;
      case "go-away":
        return this.opened.end();
      case "other":
    }
  }

  async #open({
    stream: id,
    fin,
    block,
  }: SpdyFrame & { readonly kind: "open" | "reply" | "headers" }) {
    const headers = await this.#headers.read(block);
    if (id % 2 === 0 || id <= this.#last)
      throw new SpdyError(`A client cannot open stream ${id} after ${this.#last}`);
    this.#last = id;
    if (this.#isClosing || this.#streams.size >= mostStreams) {
      await this.#out.write(encodeReset(id, resetStatus.refused));
      return;
    }
    const open: Open = { inbox: new Inbox(), peerEnded: false, ended: false };
    this.#streams.set(id, open);
    const block0 = emptyHeaders(!this.#hasReplied);
    this.#hasReplied = true;
    await this.#out.write(encodeReply(id, block0));
    if (fin) this.#peerEnded(id, open);
    this.opened.push(this.#channel(id, open, headers));
  }

  #channel(id: number, open: Open, headers: ReadonlyMap<string, string>): SpdyStream {
    const isOpen = (): boolean => !open.ended && this.#streams.get(id) === open;
    return {
      id,
      headers,
      input: open.inbox,
      write: async (data) => {
        for (let from = 0; from < data.length && isOpen(); from += frameBytes)
          await this.#out.write(encodeData(id, data.subarray(from, from + frameBytes)));
      },
      end: () => {
        if (!isOpen()) return;
        open.ended = true;
        void this.#out.write(encodeData(id, Buffer.alloc(0), true));
        this.#forgetEnded(id, open);
      },
      discard: () => open.inbox.close(),
      reset: () => {
        open.inbox.close();
        if (!this.#streams.delete(id)) return;
        void this.#out.write(encodeReset(id, resetStatus.cancel));
      },
    };
  }

  #peerEnded(id: number, open: Open): void {
    open.peerEnded = true;
    open.inbox.end();
    this.#forgetEnded(id, open);
  }

  #forgetEnded(id: number, open: Open): void {
    if (open.ended && open.peerEnded) this.#streams.delete(id);
  }
}
