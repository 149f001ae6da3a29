/** Frames of WebSocket (RFC 6455), as a server reads and writes them. Pure. */
export interface WebSocketFrame {
  readonly opcode: number;
  /** The last one of its message. */
  readonly fin: boolean;
  readonly data: Buffer;
}

/** A peer that does not speak WebSocket, or too much of it; the code is that of its close frame. */
export class WebSocketError extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

export const opcode = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;
export const closeCode = { normal: 1000, protocol: 1002, tooLong: 1009 } as const;

/** Longest message, bytes: clients of Kubernetes send 32 KiB. */
export const messageLimit = 1024 * 1024;
const controlLimit = 125;

/** Cuts what a client sends into frames. */
export class WebSocketDecoder {
  #kept: Buffer = Buffer.alloc(0);

  /** Throws `WebSocketError`. */
  *push(bytes: Buffer): Generator<WebSocketFrame> {
    this.#kept = this.#kept.length === 0 ? bytes : Buffer.concat([this.#kept, bytes]);
    for (let frame = this.#next(); frame !== undefined; frame = this.#next()) yield frame;
  }

  #next(): WebSocketFrame | undefined {
    const kept = this.#kept;
    if (kept.length < 2) return undefined;
    const [first, second] = [kept.readUInt8(0), kept.readUInt8(1)];
    const refuse = (message: string): never => {
      throw new WebSocketError(closeCode.protocol, message);
    };
    if ((first & 0x70) !== 0) refuse("No extension was agreed on");
    if ((second & 0x80) === 0) refuse("A client masks what it sends");
    const fin = (first & 0x80) !== 0;
    const code = first & 0x0f;
    const short = second & 0x7f;
    if (code >= opcode.close && (!fin || short > controlLimit))
      refuse("A control frame is short, and whole");
    const wide = short === 127 ? 8 : short === 126 ? 2 : 0;
    if (kept.length < 2 + wide + 4) return undefined;
    const length = wide === 0 ? short : wide === 2 ? kept.readUInt16BE(2) : longLength(kept);
    if (length > messageLimit)
      throw new WebSocketError(closeCode.tooLong, `A frame has more than ${messageLimit} bytes`);
    const at = 2 + wide + 4;
    if (kept.length < at + length) return undefined;
    const mask = kept.subarray(at - 4, at);
    const data = Buffer.from(kept.subarray(at, at + length));
    for (let i = 0; i < length; i++) data[i] = (data[i] as number) ^ (mask[i % 4] as number);
    this.#kept = kept.subarray(at + length);
    return { opcode: code, fin, data };
  }
}

const longLength = (kept: Buffer): number =>
  kept.readUInt32BE(2) === 0 ? kept.readUInt32BE(6) : Number.POSITIVE_INFINITY;

/** A whole message, or a control frame. */
export function encodeFrame(code: number, data: Uint8Array): Buffer {
  const { length } = data;
  const head = Buffer.alloc(length > 0xffff ? 10 : length > controlLimit ? 4 : 2);
  head.writeUInt8(0x80 | code, 0);
  if (head.length === 2) head.writeUInt8(length, 1);
  else if (head.length === 4) {
    head.writeUInt8(126, 1);
    head.writeUInt16BE(length, 2);
  } else {
    head.writeUInt8(127, 1);
    head.writeUInt32BE(length, 6);
  }
  return Buffer.concat([head, data]);
}

export function encodeClose(code: number): Buffer {
  const data = Buffer.alloc(2);
  data.writeUInt16BE(code, 0);
  return encodeFrame(opcode.close, data);
}
