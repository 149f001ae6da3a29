import { viewOf } from "./query.ts";

/** RFC 6891: an OPT record has flags where others have their time to live. */
const typeOpt = 41;

/**
 * Where the times to live of an answer's records begin, in its bytes. Undefined for a message that
 * cannot be read to its end. Pure.
 */
export function timesIn(bytes: Uint8Array, questionEnd: number): readonly number[] | undefined {
  if (bytes.length < questionEnd) return undefined;
  const view = viewOf(bytes);
  const records = [6, 8, 10].reduce((sum, at) => sum + view.getUint16(at), 0);
  const found: number[] = [];
  let at = questionEnd;
  for (let nth = 0; nth < records; nth++) {
    const type = endOfName(bytes, at);
    if (type === undefined || type + 10 > bytes.length) return undefined;
    if (view.getUint16(type) !== typeOpt) found.push(type + 4);
    at = type + 10 + view.getUint16(type + 8);
    if (at > bytes.length) return undefined;
  }
  return found;
}

/** Offset behind a name, whose end may be elsewhere in the message (RFC 1035 section 4.1.4). */
function endOfName(bytes: Uint8Array, from: number): number | undefined {
  for (let at = from; at < bytes.length; ) {
    const length = bytes[at] ?? 0;
    if (length >= 0xc0) return at + 2;
    if (length > 63) return undefined;
    at += 1 + length;
    if (length === 0) return at;
  }
  return undefined;
}
