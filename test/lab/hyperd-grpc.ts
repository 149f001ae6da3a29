import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

/** A field of a message by its number, as a client has it that was compiled long ago. */
export type Fields = readonly (readonly [number: number, value: string | number | Fields])[];

/** What a method answered: gRPC's status, its sentence, and the fields of each message. */
export interface GrpcAnswer {
  readonly status: number;
  readonly message: string;
  readonly fields: readonly (readonly [number, string | number])[];
}

/** The bytes of a message. */
export function encode(fields: Fields): Uint8Array {
  const writer = new BinaryWriter();
  for (const [number, value] of fields) {
    if (typeof value === "number") writer.tag(number, WireType.Varint).int64(value);
    else if (typeof value === "string") writer.tag(number, WireType.LengthDelimited).string(value);
    else writer.tag(number, WireType.LengthDelimited).bytes(encode(value));
  }
  return writer.finish();
}

/** Fields of one level: numbers, and all else as text of the same bytes. */
export function decode(bytes: Uint8Array): readonly (readonly [number, string | number])[] {
  const reader = new BinaryReader(bytes);
  const fields: [number, string | number][] = [];
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    if (type === WireType.Varint) fields.push([number, Number(reader.int64())]);
    else fields.push([number, Buffer.from(reader.bytes()).toString("latin1")]);
  }
  return fields;
}

/**
 * Calls a method of hyperd's `types.PublicAPI` as frakti does, without anything of podnet's: HTTP/2
 * on the socket, one message, and what comes until the end.
 */
export async function callGrpc(
  socket: string,
  method: string,
  fields: Fields,
): Promise<GrpcAnswer> {
  const session = connectHttp2("http://localhost", { createConnection: () => connect(socket) });
  try {
    const call = session.request({
      ":method": "POST",
      ":path": `/types.PublicAPI/${method}`,
      "content-type": "application/grpc",
      te: "trailers",
    });
    const ended = Promise.withResolvers<void>();
    let [status, message] = [-1, ""];
    const read = (headers: Readonly<Record<string, unknown>>): void => {
      if (headers["grpc-status"] === undefined) return;
      status = Number(headers["grpc-status"]);
      const said = headers["grpc-message"];
      message = typeof said === "string" ? decodeURIComponent(said) : "";
    };
    const chunks: Buffer[] = [];
    call.on("response", read).on("trailers", read);
    call.on("data", (chunk: Buffer) => chunks.push(chunk));
    call.on("error", ended.reject).on("close", ended.resolve);
    session.on("error", ended.reject);
    const body = encode(fields);
    const head = Buffer.alloc(5);
    head.writeUInt32BE(body.length, 1);
    call.end(Buffer.concat([head, body]));
    await ended.promise;
    return { status, message, fields: messagesOf(Buffer.concat(chunks)).flatMap(decode) };
  } finally {
    session.destroy();
  }
}

function messagesOf(all: Buffer): readonly Buffer[] {
  const messages: Buffer[] = [];
  for (let at = 0; at < all.length; ) {
    const end = at + 5 + all.readUInt32BE(at + 1);
    messages.push(all.subarray(at + 5, end));
    at = end;
  }
  return messages;
}
