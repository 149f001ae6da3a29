import { type DescMessage, type DescMethod, fromBinary } from "@bufbuild/protobuf";
import { PodnetError } from "../core/errors.ts";
import { toConnectError } from "./codes.ts";
import { maxRequestBytes } from "./service.ts";

/** Flags and length of a message in a stream or in gRPC, bytes. */
const headBytes = 5;
const compressed = 1;
/**
 * A request's body, message by message, each of them looked at before Connect 2.2.0 sees it: what cannot be read it calls
 * an internal error, without a code of ours. Of a message too large no more is read than its length.
 * Reading throws errors as they are sent: `INVALID_ARGUMENT`, `LIMIT_REACHED`, `UNSUPPORTED`.
 */
export function checkedBody(
  body: AsyncIterable<Uint8Array>,
  contentType: string,
  { input, methodKind }: DescMethod,
): AsyncIterable<Uint8Array> {
  const type = contentType.toLowerCase();
  const binary =
    /^application\/(?:proto|(?:connect|grpc|grpc-web)\+proto|grpc|grpc-web)\b(?!\+)/.test(type);
  const check = (message: Uint8Array): void => {
    if (binary) readable(input, message);
  };
  return /^application\/(?:connect\+|grpc)/.test(type)
    ? envelopes(body, check, !["client_streaming", "bidi_streaming"].includes(methodKind))
    : whole(body, check);
}

async function* whole(
  body: AsyncIterable<Uint8Array>,
  check: (message: Uint8Array) => void,
): AsyncGenerator<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > maxRequestBytes) throw tooLarge();
    chunks.push(chunk);
  }
  const message = Buffer.concat(chunks);
  check(message);
  yield message;
}

async function* envelopes(
  body: AsyncIterable<Uint8Array>,
  check: (message: Uint8Array) => void,
  one: boolean,
): AsyncGenerator<Uint8Array> {
  let pending = Buffer.alloc(0);
  let messages = 0;
  for await (const chunk of body) {
    pending = Buffer.concat([pending, chunk]);
    for (;;) {
      if (pending.length < headBytes) break;
      const flags = pending[0] as number;
      const length = pending.readUInt32BE(1);
      checkHead(flags, length);
      if (pending.length < headBytes + length) break;
      const envelope = pending.subarray(0, headBytes + length);
      pending = pending.subarray(envelope.length);
      messages++;
      if (one && messages > 1) throw notOne("more than one message");
      check(envelope.subarray(headBytes));
      yield envelope;
    }
  }
  if (pending.length > 0)
    throw refusal(new PodnetError("INVALID_ARGUMENT", "The request ends within a message"));
  if (one && messages === 0) throw notOne("no message");
}

const notOne = (what: string): Error =>
  refusal(
    new PodnetError("INVALID_ARGUMENT", `The request has ${what}`, {
      hint: "This method takes one; without fields it has length 0, or is {} in JSON",
    }),
  );

function checkHead(flags: number, length: number): void {
  if (length > maxRequestBytes) throw tooLarge();
  if (flags === 0) return;
  // (Ends of streams, Connect's 2 and gRPC-Web's 128, are sent by servers alone.)
  throw refusal(
    flags === compressed
      ? new PodnetError("UNSUPPORTED", "Compressed messages are not taken", {
          hint: "Send them as they are",
        })
      : new PodnetError("INVALID_ARGUMENT", `A message has flags ${flags}, which no request has`),
  );
}

function readable(input: DescMessage, message: Uint8Array): void {
  try {
    fromBinary(input, message);
  } catch (cause) {
    throw refusal(
      new PodnetError("INVALID_ARGUMENT", `The request is no ${input.typeName}`, {
        hint: "Encode it by the .proto files in api/podnet/v1",
        cause,
      }),
    );
  }
}

const tooLarge = (): Error =>
  refusal(
    new PodnetError("LIMIT_REACHED", `A request may have ${maxRequestBytes} bytes`, {
      hint: "Make it smaller",
    }),
  );

const refusal = (error: PodnetError): Error => toConnectError(error);
