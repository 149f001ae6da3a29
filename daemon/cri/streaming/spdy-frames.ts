/** The frames of SPDY/3.1 that Kubernetes' clients send, and those sent to them. Pure. */
export type SpdyFrame =
  /** A part of a data frame: only its last one ends the stream. */
  | { readonly kind: "data"; readonly stream: number; readonly fin: boolean; readonly data: Buffer }
  | {
      readonly kind: "open" | "reply" | "headers";
      readonly stream: number;
      readonly fin: boolean;
      /** Compressed headers. */
      readonly block: Buffer;
    }
  | { readonly kind: "reset"; readonly stream: number }
  | { readonly kind: "ping"; readonly id: number }
  | { readonly kind: "go-away" }
  /** Of no meaning here: settings, windows, and what is not known. */
  | { readonly kind: "other" };

/** A peer that does not speak SPDY/3. */
export class SpdyError extends Error {}

const version = 3;
const headBytes = 8;
/** Longest control frame, bytes: headers of Kubernetes' clients have some hundreds. */
const controlLimit = 64 * 1024;
const types = { open: 1, reply: 2, reset: 3, ping: 6, goAway: 7, headers: 8 } as const;
const finFlag = 1;
const streamMask = 0x7fffffff;

/** Why a stream is reset. */
export const resetStatus = { protocol: 1, refused: 3, cancel: 5 } as const;

/** Cuts a connection's bytes into frames. */
export class SpdyDecoder {
  #kept: Buffer = Buffer.alloc(0);
  /** The data frame whose bytes are coming. */
  #data: { readonly stream: number; readonly fin: boolean; left: number } | undefined;

  /** Throws `SpdyError`. */
  *push(bytes: Buffer): Generator<SpdyFrame> {
    this.#kept = this.#kept.length === 0 ? bytes : Buffer.concat([this.#kept, bytes]);
    for (let frame = this.#next(); frame !== undefined; frame = this.#next()) yield frame;
  }

  #next(): SpdyFrame | undefined {
    if (this.#data !== undefined) return this.#part(this.#data);
    if (this.#kept.length < headBytes) return undefined;
    const first = this.#kept.readUInt32BE(0);
    const flags = this.#kept.readUInt8(4);
    const length = this.#kept.readUIntBE(5, 3);
    const isControl = first > streamMask;
    if (!isControl) {
      this.#take(headBytes);
      this.#data = { stream: first, fin: (flags & finFlag) !== 0, left: length };
      return this.#part(this.#data);
    }
    if (((first >>> 16) & 0x7fff) !== version) throw new SpdyError("The frame is not of SPDY/3");
    if (length > controlLimit)
      throw new SpdyError(`A control frame of ${length} bytes is too long`);
    if (this.#kept.length < headBytes + length) return undefined;
    this.#take(headBytes);
    return control(first & 0xffff, flags, this.#take(length));
  }

  /** What there is of a data frame; undefined while that is nothing. */
  #part(data: { readonly stream: number; readonly fin: boolean; left: number }) {
    if (this.#kept.length === 0 && data.left > 0) return undefined;
    const part = this.#take(Math.min(data.left, this.#kept.length));
    data.left -= part.length;
    const isLast = data.left === 0;
    if (isLast) this.#data = undefined;
    return { kind: "data", stream: data.stream, fin: data.fin && isLast, data: part } as const;
  }

  #take(length: number): Buffer {
    const taken = this.#kept.subarray(0, length);
    this.#kept = this.#kept.subarray(length);
    return taken;
  }
}

/** Bytes of a control frame before its headers. */
const before: Readonly<Record<number, number>> = {
  [types.open]: 10,
  [types.reply]: 4,
  [types.headers]: 4,
};

function control(type: number, flags: number, payload: Buffer): SpdyFrame {
  const needed = before[type] ?? (type === types.reset || type === types.ping ? 4 : 0);
  if (payload.length < needed) throw new SpdyError(`A control frame ${type} is too short`);
  const fin = (flags & finFlag) !== 0;
  const number = (): number => payload.readUInt32BE(0) & streamMask;
  switch (type) {
    case types.open:
    case types.reply:
    case types.headers: {
      const kind = type === types.open ? "open" : type === types.reply ? "reply" : "headers";
      return { kind, stream: number(), fin, block: payload.subarray(needed) };
    }
    case types.reset:
      return { kind: "reset", stream: number() };
    case types.ping:
      return { kind: "ping", id: payload.readUInt32BE(0) };
    case types.goAway:
      return { kind: "go-away" };
    default:
      return { kind: "other" };
  }
}

function encodeControl(type: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(headBytes);
  head.writeUInt16BE(0x8000 | version, 0);
  head.writeUInt16BE(type, 2);
  head.writeUIntBE(payload.length, 5, 3);
  return Buffer.concat([head, payload]);
}

function numbers(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  values.forEach((value, i) => bytes.writeUInt32BE(value, 4 * i));
  return bytes;
}

/** Bytes of a data frame, at most 16 MiB. */
export function encodeData(stream: number, data: Uint8Array, fin = false): Buffer {
  const head = Buffer.alloc(headBytes);
  head.writeUInt32BE(stream, 0);
  head.writeUInt8(fin ? finFlag : 0, 4);
  head.writeUIntBE(data.length, 5, 3);
  return Buffer.concat([head, data]);
}

export const encodeReply = (stream: number, block: Buffer): Buffer =>
  encodeControl(types.reply, Buffer.concat([numbers(stream), block]));
export const encodeReset = (stream: number, status: number): Buffer =>
  encodeControl(types.reset, numbers(stream, status));
/** Also the answer to the peer's. */
export const encodePing = (id: number): Buffer => encodeControl(types.ping, numbers(id));
/** `last`: the last stream of the peer's that was taken. */
export const encodeGoAway = (last: number): Buffer => encodeControl(types.goAway, numbers(last, 0));
