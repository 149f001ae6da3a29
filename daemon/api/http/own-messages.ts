import type { ServerResponse } from "node:http";
import type { Http2ServerResponse, ServerHttp2Stream } from "node:http2";
import { createContextKey } from "@connectrpc/connect";
import { PodnetError } from "../../../core/errors.ts";

interface Message {
  readonly framed: Uint8Array;
  readonly written: () => void;
}

/**
 * Messages of a streamed answer that its method has encoded itself, in memory of its own. Each that
 * goes through Connect is copied into three new buffers: a program that writes much makes podnetd
 * collect garbage for half of its time.
 */
export class OwnMessages {
  /** Bytes that Node holds and the kernel has not. */
  readonly #held: () => number;
  #offered: Message | undefined;
  #sent: PromiseWithResolvers<void> | undefined;
  #wake: (() => void) | undefined;
  #closed = false;
  /** Bytes of the body so far. */
  #bytes = 0;
  /** Messages that Node may hold, and where they end in the body. */
  readonly #unwritten: { readonly end: number; readonly written: () => void }[] = [];

  constructor(response: ServerResponse | Http2ServerResponse) {
    this.#held = () => heldOf("stream" in response ? response.stream : response);
  }

  /**
   * Sends a message, framed as Connect and gRPC do, behind all that the method has yielded: at
   * least one. Resolves when the next may come. Calls `written` when Node holds none of the bytes;
   * not if that never shows. Rejects with `CANCELLED` when the caller has gone.
   */
  send(framed: Uint8Array, written: () => void): Promise<void> {
    if (this.#closed) return Promise.reject(callerGone());
    this.#offered = { framed, written };
    this.#sent = Promise.withResolvers();
    this.#wake?.();
    return this.#sent.promise;
  }

  /** The body of the answer: what Connect has encoded, and these messages in their places. */
  async *among(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
    const others = body[Symbol.asyncIterator]();
    try {
      for (;;) {
        const other = { isThere: false };
        const arrived = (): void => {
          other.isThere = true;
          this.#wake?.();
        };
        const next = others.next();
        next.then(arrived, arrived);
        while (!other.isThere || this.#offered !== undefined) {
          const own = this.#offered;
          this.#offered = undefined;
          if (own === undefined) await this.#change();
          else {
            this.#unwritten.push({ end: this.#bytes + own.framed.length, written: own.written });
            yield own.framed;
            this.#passed(own.framed);
            this.#sent?.resolve();
          }
        }
        const result = await next;
        if (result.done === true) return;
        yield result.value;
        this.#passed(result.value);
      }
    } finally {
      this.#closed = true;
      this.#sent?.reject(callerGone());
      others.return?.().catch(() => {});
    }
  }

  #passed({ length }: Uint8Array): void {
    this.#bytes += length;
    this.#release();
  }

  /** Node writes in order: what it holds is the end of what there was. */
  #release(): void {
    const written = this.#bytes - this.#held();
    for (let first = this.#unwritten[0]; first !== undefined && first.end <= written; ) {
      first.written();
      this.#unwritten.shift();
      first = this.#unwritten[0];
    }
  }

  #change(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }
}

/**
 * Bytes that a stream has not handed to the kernel. One that is closed counts no longer what is
 * under way.
 */
function heldOf(stream: ServerHttp2Stream | ServerResponse | undefined): number {
  if (stream === undefined || stream.destroyed) return Infinity;
  return ("closed" in stream && stream.closed) || stream.writableAborted
    ? Infinity
    : stream.writableLength;
}

const callerGone = (): PodnetError =>
  new PodnetError("CANCELLED", "The caller went away before it had all of the answer");

/** Absent where the caller speaks JSON. */
export const ownMessagesKey = createContextKey<OwnMessages | undefined>(undefined, {
  description: "messages that are encoded by their method",
});

const binaryStreams = /^application\/(connect\+proto|grpc(-web)?(\+proto)?)\s*(;|$)/i;

/** Whether messages of a stream are bytes of protobuf, each behind five bytes of its own. */
export const isBinaryStream = (contentType: string): boolean => binaryStreams.test(contentType);

const headBytes = 5;

/**
 * What comes before `length` bytes, which are a field and all of a message, where it is sent: the
 * head of Connect's and gRPC's messages, and the field's tag and length.
 */
export function headOfBytes(field: number, length: number): Uint8Array {
  const head = new Uint8Array(headBytes + 2 * 5);
  let at = headBytes;
  const varint = (value: number): void => {
    let rest = value;
    for (; rest > 0x7f; rest >>>= 7) head[at++] = (rest & 0x7f) | 0x80;
    head[at++] = rest;
  };
  varint((field << 3) | 2);
  varint(length);
  new DataView(head.buffer).setUint32(1, at - headBytes + length);
  return head.subarray(0, at);
}
