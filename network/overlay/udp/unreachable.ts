import type { Buffers } from "./checksum.ts";
import { sumOf } from "./checksum.ts";
import { headerLength, ipHeader, protocolIcmp, sealHeader } from "./ipv4.ts";

const icmpHeader = 8;
/** The number of bytes of the packet's payload that the error quotes (RFC 792). */
const quoted = 8;
/** Bytes of the longest answer. */
export const longestAnswer = ipHeader + icmpHeader + 60 + quoted;
const ttl = 8;
const typeUnreachable = 3;
const fragmentOffset = 0x1fff;

/**
 * Writes the answer "network unreachable" to a packet, with flannel's time to live, but never to
 * ICMP or to later fragments. Returns its length; 0 if there is no answer.
 */
export function writeUnreachable(
  packet: Buffers,
  at: number,
  total: number,
  answer: Buffers,
  to: number,
  from: number,
): number {
  const { bytes, view } = packet;
  if (bytes[at + 9] === protocolIcmp || (view.getUint16(at + 6) & fragmentOffset) !== 0) return 0;
  const quote = Math.min(headerLength(packet, at) + quoted, total);
  const length = ipHeader + icmpHeader + quote;
  answer.bytes.fill(0, to, to + length);
  answer.bytes[to] = 0x45;
  answer.view.setUint16(to + 2, length);
  answer.bytes[to + 8] = ttl;
  answer.bytes[to + 9] = protocolIcmp;
  answer.view.setUint32(to + 12, from);
  answer.view.setUint32(to + 16, view.getUint32(at + 12));
  sealHeader(answer, to, ipHeader);
  const icmp = to + ipHeader;
  answer.bytes[icmp] = typeUnreachable;
  for (let i = 0; i < quote; i++) answer.bytes[icmp + icmpHeader + i] = bytes[at + i] as number;
  answer.view.setUint16(icmp + 2, ~sumOf(answer, icmp, icmpHeader + quote));
  return length;
}
