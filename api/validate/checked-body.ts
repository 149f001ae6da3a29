import { type DescMessage, type DescMethod, fromBinary } from "@bufbuild/protobuf";
import { PodnetError } from "../../core/errors.ts";
import { toConnectError } from "../codes.ts";
import { countBinary, countJson } from "../count-values.ts";
import { limitsOf, type RequestLimits } from "../request-limits.ts";

/** Flags and length of a message in a stream or in gRPC, bytes. */
const headBytes = 5;
const compressed = 1;

/** How a request's messages are looked at. */
interface Check {
  readonly limits: RequestLimits;
  readonly method: DescMethod;
  /** Looks at a message that has come; throws what it is refused with. */
  message(message: Uint8Array): Promise<void>;
  /** Counts a message that is beyond a limit, by the limit's name. */
  refused(limit: string): void;
}

export interface CheckedBodyOptions {
  /** Awaited before a message is looked at, when all of it is there. */
  turn(): Promise<void>;
  /** Called with the name of the limit that a message is beyond. */
  refused(limit: string): void;
}

/**
 * A request's body, message by message, each of them looked at before Connect 2.2.0 sees it: what
 * cannot be read it calls an internal error, without a code of ours. Of a message too large no more
 * is read than its length, and of one with too many values none is built. Reading throws errors as
 * they are sent: `INVALID_ARGUMENT`, `LIMIT_REACHED`, `UNSUPPORTED`.
 */
export function checkedBody(
  body: AsyncIterable<Uint8Array>,
  contentType: string,
  method: DescMethod,
  { turn, refused }: CheckedBodyOptions,
): AsyncIterable<Uint8Array> {
  const type = contentType.toLowerCase();
  const binary =
    /^application\/(?:proto|(?:connect|grpc|grpc-web)\+proto|grpc|grpc-web)(?=$|[;\s])/.test(type);
  const limits = limitsOf(method);
  const check: Check = {
    limits,
    method,
    refused,
    async message(message) {
      await turn();
      const { input } = method;
      const count = binary
        ? countBinary(input, message, limits.values)
        : countJson(message, limits.values);
      if (count > limits.values) throw beyond(check, tooMany(method, limits.values));
      if (binary) readable(input, message);
    },
  };
  return /^application\/(?:connect\+|grpc)/.test(type)
    ? envelopes(body, check, !["client_streaming", "bidi_streaming"].includes(method.methodKind))
    : whole(body, check);
}

async function* whole(body: AsyncIterable<Uint8Array>, check: Check): AsyncGenerator<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > check.limits.bytes) throw beyond(check, tooLarge(check.method));
    chunks.push(chunk);
  }
  const message = Buffer.concat(chunks);
  await check.message(message);
  yield message;
}

async function* envelopes(
  body: AsyncIterable<Uint8Array>,
  check: Check,
  one: boolean,
): AsyncGenerator<Uint8Array> {
  const pending = new Pending();
  let messages = 0;
  for await (const chunk of body) {
    pending.add(chunk);
    for (;;) {
      const head = pending.peek(headBytes);
      if (head === undefined) break;
      const length = head.readUInt32BE(1);
      checkHead(head[0] as number, length, check);
      const envelope = pending.take(headBytes + length);
      if (envelope === undefined) break;
      messages++;
      if (one && messages > 1) throw notOne("more than one message");
      await check.message(envelope.subarray(headBytes));
      yield envelope;
    }
  }
  if (pending.length > 0)
    throw refusal(new PodnetError("INVALID_ARGUMENT", "The request ends within a message"));
  if (one && messages === 0) throw notOne("no message");
}

/**
 * Bytes that have come and are not yet taken, joined once: a message may come in as many chunks as
 * it has bytes.
 */
class Pending {
  #chunks: Uint8Array[] = [];
  length = 0;

  add(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.length += chunk.length;
  }

  /** The first bytes; undefined while there are not so many. */
  peek(length: number): Buffer | undefined {
    if (this.length < length) return undefined;
    return this.#joined((this.#chunks[0] as Uint8Array).length < length).subarray(0, length);
  }

  /** Takes the first bytes away; undefined, and nothing taken, while there are not so many. */
  take(length: number): Buffer | undefined {
    if (this.length < length) return undefined;
    const all = this.#joined(this.#chunks.length > 1);
    this.length -= length;
    this.#chunks = this.length === 0 ? [] : [all.subarray(length)];
    return all.subarray(0, length);
  }

  /** The first chunk, or all of them in one. */
  #joined(all: boolean): Buffer {
    if (all) this.#chunks = [Buffer.concat(this.#chunks)];
    const [first] = this.#chunks as [Uint8Array];
    return Buffer.from(first.buffer, first.byteOffset, first.length);
  }
}

const notOne = (what: string): Error =>
  refusal(
    new PodnetError("INVALID_ARGUMENT", `The request has ${what}`, {
      hint: "This method takes one; without fields it has length 0, or is {} in JSON",
    }),
  );

function checkHead(flags: number, length: number, check: Check): void {
  if (length > check.limits.bytes) throw beyond(check, tooLarge(check.method));
  if (flags === 0) return;
  // (Ends of streams, Connect's 2 and gRPC-Web's 128, are sent by servers alone.)
  throw refusal(
    flags === compressed
      ? new PodnetError("UNSUPPORTED", "Compressed messages are not supported", {
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
      new PodnetError("INVALID_ARGUMENT", `The request is not a valid ${input.typeName}`, {
        hint: "Encode it by the .proto files in api/podnet/v1",
        cause,
      }),
    );
  }
}

/** What a request is refused with whose message is larger than its method takes. */
export const tooLarge = (method: DescMethod): PodnetError =>
  new PodnetError(
    "LIMIT_REACHED",
    `A message to ${method.name} may have ${limitsOf(method).bytes} bytes, and this one has more`,
    { hint: "Send less at once", details: { limit: "request_bytes" } },
  );

const tooMany = (method: DescMethod, most: number): PodnetError =>
  new PodnetError(
    "LIMIT_REACHED",
    `A message to ${method.name} may have ${most} fields and entries, and this one has more`,
    { hint: "Send fewer entries of its lists and maps", details: { limit: "request_values" } },
  );

function beyond({ refused }: Check, error: PodnetError): Error {
  refused(String(error.details["limit"]));
  return refusal(error);
}

const refusal = (error: PodnetError): Error => toConnectError(error);
