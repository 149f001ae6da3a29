import {
  type Answer,
  encode,
  type PacketOpt,
  RECURSION_AVAILABLE,
  RECURSION_DESIRED,
} from "dns-packet";
import { assertNever } from "../../core/brand.ts";
import { type Query, rcodes, usualUdpBytes, withId } from "./query.ts";
import type { Found } from "./zone.ts";

const AUTHORITATIVE = 1 << 10;

interface Said {
  readonly flags: number;
  /** Why there is no answer, for clients that speak EDNS. */
  readonly why?: ExtendedError;
  readonly answers?: readonly Answer[];
  readonly authorities?: readonly Answer[];
}

/** An extended error (RFC 8914): its code, and words for people. */
interface ExtendedError {
  readonly code: number;
  readonly text: string;
}

/**
 * RFC 8914 section 2: option 15 has the code in two bytes, and text behind it. (dns-packet writes
 * any option, though its types know four.)
 */
const errorOption = ({ code, text }: ExtendedError): PacketOpt =>
  ({
    code: 15,
    data: Buffer.concat([Buffer.of(code >> 8, code & 255), Buffer.from(text)]),
  }) as unknown as PacketOpt;

/** A reply to a query: its question as it came, then what is said. */
function reply(query: Query, { flags, why, answers = [], authorities = [] }: Said): Uint8Array {
  const { id, recursionDesired, edns, bytes, questionEnd } = query;
  const records = encode({
    type: "response",
    id,
    flags: flags | RECURSION_AVAILABLE | (recursionDesired ? RECURSION_DESIRED : 0),
    answers: [...answers],
    authorities: [...authorities],
    additionals: edns
      ? [
          {
            type: "OPT",
            name: ".",
            udpPayloadSize: usualUdpBytes,
            extendedRcode: 0,
            ednsVersion: 0,
            flags: 0,
            flag_do: false,
            options: why === undefined ? [] : [errorOption(why)],
          },
        ]
      : [],
  });
  const whole = Buffer.concat([
    records.subarray(0, 12),
    bytes.subarray(12, questionEnd),
    records.subarray(12),
  ]);
  whole.writeUInt16BE(1, 4);
  return whole;
}

/** podnet's own answer. */
export function replyOf(query: Query, found: Exclude<Found, { kind: "elsewhere" }>): Uint8Array {
  switch (found.kind) {
    case "records":
      return reply(query, { flags: AUTHORITATIVE, answers: found.records });
    case "no-data":
      return reply(query, { flags: AUTHORITATIVE, authorities: [found.soa] });
    case "no-name":
      return reply(query, { flags: AUTHORITATIVE | rcodes.nxDomain, authorities: [found.soa] });
    case "refused":
      return reply(query, { flags: rcodes.refused });
    default:
      return assertNever(found);
  }
}

/** The answer that the name cannot be resolved now. */
export const servFail = (query: Query): Uint8Array => reply(query, { flags: rcodes.servFail });

/** The answer that a policy does not let the client have it, with the reason. */
export const refusedFor = (query: Query, why: ExtendedError): Uint8Array =>
  reply(query, { flags: rcodes.refused, why });

/** The answer to an invalid query: its header, without the unreadable part. */
export function wrongQuery(bytes: Uint8Array, rcode: number): Uint8Array {
  const header = withId(bytes.subarray(0, 12), ((bytes[0] ?? 0) << 8) | (bytes[1] ?? 0));
  header[2] = 0x80 | ((bytes[2] ?? 0) & 0x79);
  header[3] = 0x80 | rcode;
  header.fill(0, 4);
  return header;
}
