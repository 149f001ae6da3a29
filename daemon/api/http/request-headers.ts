import type { HandlerContext } from "@connectrpc/connect";
import { tooLarge } from "../../../api/validate/checked-body.ts";
import { limitsOf } from "../../../api/request-limits.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";

/** A request's headers, in all, bytes. */
export const headerBytes = 16_384;

/**
 * Whether a request has larger headers. Node refuses them over HTTP/1.1; over HTTP/2 it says the
 * limit and takes 64 KiB.
 */
export const hasLargeHeaders = ({ rawHeaders }: { readonly rawHeaders: string[] }): boolean =>
  rawHeaders.reduce((bytes, text) => bytes + text.length, 0) > headerBytes;

/**
 * Where a protocol says how its messages are compressed and how long it waits, and how it writes
 * that time.
 */
interface ProtocolHeaders {
  readonly encoding: string;
  readonly timeout: string;
  readonly duration: RegExp;
  readonly example: string;
}

// connectrpc.com/docs/protocol; grpc.github.io, "PROTOCOL-HTTP2".
const connect = { timeout: "connect-timeout-ms", duration: /^\d{1,10}$/, example: "1500" } as const;
const connectUnary: ProtocolHeaders = { ...connect, encoding: "content-encoding" };
const connectStream: ProtocolHeaders = { ...connect, encoding: "connect-content-encoding" };
const grpc: ProtocolHeaders = {
  encoding: "grpc-encoding",
  timeout: "grpc-timeout",
  duration: /^\d{1,8}[HMSmun]$/,
  example: "1500m",
};

/**
 * Refuses headers that Connect 2.2.0 would refuse without a code of ours. Throws `UNSUPPORTED`,
 * `INVALID_ARGUMENT`, `LIMIT_REACHED`.
 */
export function checkHeaders({ protocolName, method, requestHeader }: HandlerContext): void {
  const unary = method.methodKind === "unary";
  const names = protocolName !== "connect" ? grpc : unary ? connectUnary : connectStream;
  const encoding = requestHeader.get(names.encoding);
  if (encoding !== null && encoding !== "identity") {
    throw new PodnetError("UNSUPPORTED", `Compression "${printable(encoding)}" is not supported`, {
      field: names.encoding,
      hint: "Send messages as they are",
    });
  }
  // (With an envelope around it, a message says its length itself.)
  if (
    names === connectUnary &&
    Number(requestHeader.get("content-length")) > limitsOf(method).bytes
  )
    throw tooLarge(method);
  const timeout = requestHeader.get(names.timeout);
  if (timeout !== null && !names.duration.test(timeout)) {
    throw new PodnetError("INVALID_ARGUMENT", `"${printable(timeout)}" is not a timeout`, {
      field: names.timeout,
      hint: `Write it as in ${names.example}, or leave the header out`,
    });
  }
}

const wrongRequests: Readonly<Record<number, readonly [message: string, hint: string]>> = {
  405: ["Methods are called by POST", "Send POST"],
  415: [
    "The request's Content-Type is none that this method takes",
    "Send application/json or application/proto; for streams application/connect+json; or gRPC's",
  ],
};

/** podnet's error for an answer of Connect that is only an HTTP status. */
export function wrongRequest(status: number): PodnetError {
  const [message, hint] = wrongRequests[status] ?? [
    "The request is not usable",
    "See docs/reference/api.md",
  ];
  return new PodnetError("INVALID_ARGUMENT", message, { hint });
}
