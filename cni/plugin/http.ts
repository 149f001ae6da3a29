import { PodnetError } from "../../core/errors.ts";
import { decodeUtf8, encodeUtf8 } from "../../core/utf8.ts";
import { exchangePath } from "../protocol/exchange.ts";

/** Bytes of an answer: far above any result. */
export const answerLimit = 1024 * 1024;
/** Bytes of an answer's head. */
const headLimit = 16 * 1024;

/** The one request that is made on a connection (HTTP/1.1). */
export function renderPost(body: string): Uint8Array {
  const bytes = encodeUtf8(body);
  const head = encodeUtf8(
    `POST ${exchangePath} HTTP/1.1\r\nHost: podnet\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${bytes.length}\r\n\r\n`,
  );
  const whole = new Uint8Array(head.length + bytes.length);
  whole.set(head);
  whole.set(bytes, head.length);
  return whole;
}

export interface Answer {
  readonly status: number;
  readonly body: Uint8Array;
}

/**
 * Parses the bytes of an answer that have arrived: undefined while it is incomplete. Throws
 * `INTERNAL` for an answer that is not podnetd's, which always states its length.
 */
export function parseAnswer(bytes: Uint8Array): Answer | undefined {
  const end = headEnd(bytes);
  if (end === undefined) {
    if (bytes.length > headLimit) throw refuse("a head that does not end");
    return undefined;
  }
  const [statusLine = "", ...fields] = decodeUtf8(bytes.subarray(0, end)).split("\r\n");
  const status = /^HTTP\/1\.[01] ([1-5][0-9]{2})(?: |$)/.exec(statusLine)?.[1];
  if (status === undefined) throw refuse("no HTTP");
  const lengths = fields.flatMap(
    (field) => /^content-length:[ \t]*([0-9]{1,9})[ \t]*$/i.exec(field)?.[1] ?? [],
  );
  const [length] = lengths;
  if (length === undefined || lengths.length > 1) throw refuse("no length");
  if (Number(length) > answerLimit) throw refuse(`${length} bytes`);
  const body = bytes.subarray(end + 4);
  if (body.length < Number(length)) return undefined;
  return { status: Number(status), body: body.subarray(0, Number(length)) };
}

/** Where the empty line is that ends the head. */
function headEnd(bytes: Uint8Array): number | undefined {
  for (let at = bytes.indexOf(13); at >= 0; at = bytes.indexOf(13, at + 1))
    if (bytes[at + 1] === 10 && bytes[at + 2] === 13 && bytes[at + 3] === 10) return at;
  return undefined;
}

const refuse = (what: string): PodnetError =>
  new PodnetError("INTERNAL", `The answer at the socket of podnetd has ${what}`, {
    hint: "Check which program listens on the socket; it must be podnetd of the same version",
  });
