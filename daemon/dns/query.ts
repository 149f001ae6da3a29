import { decode } from "dns-packet";

/** Longest query that is parsed, bytes: with EDNS some have options, but none needs more. */
export const longestQuery = 4096;
/**
 * Datagrams beyond that many bytes are cut into pieces on some way (RFC 6891, DNS flag day 2020).
 */
export const usualUdpBytes = 1232;
/** Longest answer by UDP to who says nothing of it (RFC 1035 section 4.2.1). */
export const plainUdpBytes = 512;
const headerBytes = 12;

/** RFC 1035 section 4.1.1, RFC 6895. */
export const rcodes = { formErr: 1, servFail: 2, nxDomain: 3, notImp: 4, refused: 5 } as const;

/** A question of a guest, as far as it matters who answers. */
export interface Query {
  readonly id: number;
  /** As it came. */
  readonly bytes: Uint8Array;
  /** Where in it the question ends. */
  readonly questionEnd: number;
  readonly name: string;
  readonly type: number;
  readonly class: number;
  readonly recursionDesired: boolean;
  /** Longest answer by UDP it bears. */
  readonly udpBytes: number;
  /** It speaks EDNS. */
  readonly edns: boolean;
}

export type ReadQuery =
  | { readonly kind: "query"; readonly query: Query }
  /** To be notified of its error. */
  | { readonly kind: "wrong"; readonly rcode: number }
  /** Not to be answered: not a query, or too short for one. */
  | { readonly kind: "nothing" };

const wrong = (rcode: number): ReadQuery => ({ kind: "wrong", rcode });

/**
 * Parses a guest's query. It is checked before the codec: one question, and no more records than a
 * query has, for the codec makes room for as many as the header says.
 */
export function readQuery(bytes: Uint8Array): ReadQuery {
  if (bytes.length < headerBytes) return { kind: "nothing" };
  const view = viewOf(bytes);
  const flags = view.getUint16(2);
  // Answering an answer, two resolvers would go on for ever.
  if ((flags & 0x8000) !== 0) return { kind: "nothing" };
  if (((flags >> 11) & 0xf) !== 0) return wrong(rcodes.notImp);
  const [questions, answers, authorities, additionals] = [4, 6, 8, 10].map((at) =>
    view.getUint16(at),
  ) as [number, number, number, number];
  const questionEnd = endOfQuestion(bytes);
  if (questions !== 1 || answers + authorities !== 0 || additionals > 2)
    return wrong(rcodes.formErr);
  if (bytes.length > longestQuery || questionEnd === undefined) return wrong(rcodes.formErr);
  try {
    const { questions: asked = [], additionals: more = [] } = decode(Buffer.from(bytes));
    const options = more.find(({ type }) => type === "OPT");
    const offered = options?.type === "OPT" ? options.udpPayloadSize : plainUdpBytes;
    return {
      kind: "query",
      query: {
        id: view.getUint16(0),
        bytes,
        questionEnd,
        name: asked[0]?.name ?? ".",
        type: view.getUint16(questionEnd - 4),
        class: view.getUint16(questionEnd - 2),
        recursionDesired: (flags & 0x0100) !== 0,
        udpBytes: Math.max(plainUdpBytes, offered),
        edns: options !== undefined,
      },
    };
  } catch {
    return wrong(rcodes.formErr);
  }
}

/**
 * Where the first question ends; undefined when it does not, or its name refers elsewhere, as a
 * first name cannot.
 */
function endOfQuestion(bytes: Uint8Array): number | undefined {
  const view = viewOf(bytes);
  for (let at = headerBytes; at < bytes.length; ) {
    const length = view.getUint8(at);
    if (length > 63) return undefined;
    at += 1 + length;
    if (length === 0) return at + 4 <= bytes.length ? at + 4 : undefined;
  }
  return undefined;
}

export const viewOf = (bytes: Uint8Array): DataView =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.length);

/**
 * Whether this answers a query that was sent with an id: the same question, letters of either case.
 */
export function isAnswer(
  bytes: Uint8Array,
  { bytes: asked, questionEnd }: Query,
  id: number,
): boolean {
  if (bytes.length < questionEnd) return false;
  const view = viewOf(bytes);
  if (view.getUint16(0) !== id || (view.getUint16(2) & 0x8000) === 0) return false;
  if (view.getUint16(4) !== 1) return false;
  for (let at = headerBytes; at < questionEnd; at++) {
    const [is, was] = [view.getUint8(at), viewOf(asked).getUint8(at)];
    const inName = at < questionEnd - 4;
    if (is !== was && !(inName && lower(is) === lower(was))) return false;
  }
  return true;
}

const lower = (byte: number): number => (byte >= 0x41 && byte <= 0x5a ? byte | 0x20 : byte);

/** A message with another id. */
export function withId(bytes: Uint8Array, id: number): Uint8Array {
  const copy = Uint8Array.from(bytes);
  viewOf(copy).setUint16(0, id);
  return copy;
}

/** A server's result code, 0 for success. */
export const rcodeOf = (bytes: Uint8Array): number => (bytes[3] ?? 0) & 0xf;

/** Whether there is more of it to be had by TCP. */
export const isTruncated = (bytes: Uint8Array): boolean => ((bytes[2] ?? 0) & 0x02) !== 0;

/**
 * Its header and question alone, and that there is more to be had by TCP: for one that is longer
 * than was asked for.
 */
export function truncated(bytes: Uint8Array, { questionEnd }: Query): Uint8Array {
  const short = Uint8Array.from(bytes.subarray(0, questionEnd));
  const view = viewOf(short);
  view.setUint16(2, view.getUint16(2) | 0x0200);
  for (const at of [6, 8, 10]) view.setUint16(at, 0);
  return short;
}

/**
 * The answer to a question by UDP that says only: ask by TCP. Undefined for what cannot be read as
 * one question. It is made without reading the whole query, so that a flood costs little.
 */
export function tcpInstead(query: Uint8Array): Uint8Array | undefined {
  if (query.length < headerBytes || query.length > longestQuery) return undefined;
  const flags = viewOf(query).getUint16(2);
  // A query (QR) of the usual kind (opcode).
  if ((flags & 0xf800) !== 0 || viewOf(query).getUint16(4) !== 1) return undefined;
  const end = endOfQuestion(query);
  if (end === undefined) return undefined;
  const answer = Uint8Array.from(query.subarray(0, end));
  const view = viewOf(answer);
  // QR, TC and RA, and RD as it was asked.
  view.setUint16(2, 0x8280 | (flags & 0x0100));
  for (const at of [6, 8, 10]) view.setUint16(at, 0);
  return answer;
}
