// Frames of HTTP/2 written by hand (RFC 9113 4.1), for what no client library would send.

/** A frame, whatever is in it. */
export function frame(
  kind: number,
  flags: number,
  stream: number,
  payload: Buffer = Buffer.alloc(0),
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = kind;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

export const type = {
  data: 0,
  headers: 1,
  reset: 3,
  settings: 4,
  ping: 6,
  window: 8,
  continuation: 9,
} as const;
export const ack = 1;
export const endStream = 1;
export const endHeaders = 4;

/** How a client begins. */
export const preface = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  frame(type.settings, 0, 0),
]);

/** A header field that is not kept (HPACK, RFC 7541 6.2.2). */
export const literal = (name: string, value: string): Buffer =>
  Buffer.concat([
    Buffer.from([0, name.length]),
    Buffer.from(name),
    Buffer.from([value.length]),
    Buffer.from(value),
  ]);

/** The headers of a list. 0x83 is :method POST, 0x86 :scheme http. */
export const fields = Buffer.concat([
  Buffer.from([0x83, 0x86]),
  literal(":path", "/podnet.v1.PodService/List"),
  literal(":authority", "x"),
  literal("content-type", "application/json"),
]);

/** Takes whole frames off what has come; the rest is for later. */
export function framesIn(bytes: Buffer): {
  readonly frames: readonly {
    readonly kind: number;
    readonly flags: number;
    readonly stream: number;
    readonly payload: Buffer;
  }[];
  readonly rest: Buffer;
} {
  const frames = [];
  let rest = bytes;
  while (rest.length >= 9 && rest.length >= 9 + rest.readUIntBE(0, 3)) {
    const end = 9 + rest.readUIntBE(0, 3);
    const [kind = 0, flags = 0] = rest.subarray(3, 5);
    frames.push({ kind, flags, stream: rest.readUInt32BE(5), payload: rest.subarray(9, end) });
    rest = rest.subarray(end);
  }
  return { frames, rest };
}
