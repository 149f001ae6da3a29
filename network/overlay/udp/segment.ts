import { type Buffers, folded, sumOf } from "./checksum.ts";
import { headerLength, protocolUdp, pseudoSum, sealHeader } from "./ipv4.ts";
import { flagFin, flagPush, flagReduced, tcpChecksum, tcpFlags, tcpSequence } from "./offload.ts";

/** A segment of several that came as one. */
export interface Segment {
  /** Bytes of both headers. */
  readonly header: number;
  /** The offset of its data, and their length. */
  readonly from: number;
  readonly data: number;
  readonly index: number;
  readonly isLast: boolean;
}

/**
 * Writes the headers of a segment of the TCP packet at `at`, as its sender would have sent them one
 * by one.
 */
export function writeSegment(
  packet: Buffers,
  at: number,
  headers: Buffers,
  to: number,
  { header, from, data, index, isLast }: Segment,
): void {
  const { bytes, view } = headers;
  for (let i = 0; i < header; i++) bytes[to + i] = packet.bytes[at + i] as number;
  const ip = headerLength(headers, to);
  view.setUint16(to + 2, header + data);
  view.setUint16(to + 4, view.getUint16(to + 4) + index);
  sealHeader(headers, to, ip);
  const tcp = to + ip;
  view.setUint32(tcp + tcpSequence, view.getUint32(tcp + tcpSequence) + from);
  let flags = bytes[tcp + tcpFlags] as number;
  if (!isLast) flags &= ~(flagFin | flagPush);
  if (index > 0) flags &= ~flagReduced;
  bytes[tcp + tcpFlags] = flags;
  view.setUint16(tcp + tcpChecksum, 0);
  let sum = pseudoSum(headers, to, header - ip + data) + sumOf(headers, tcp, header - ip);
  // Data that begin at an odd place of the segment would count the other way round: headers are
  // multiples of four.
  sum += sumOf(packet, at + header + from, data);
  view.setUint16(tcp + tcpChecksum, ~folded(sum));
}

/**
 * Completes a checksum that the kernel left open: sums from `start` on, including the value in the
 * checksum's place, and stores the result there. False if that place is not within the packet.
 */
export function fillChecksum(
  memory: Buffers,
  at: number,
  total: number,
  { start, offset }: { readonly start: number; readonly offset: number },
): boolean {
  if (start < headerLength(memory, at) || start + offset + 2 > total) return false;
  const sum = ~sumOf(memory, at + start, total - start) & 0xffff;
  // In UDP, 0 would mean that there is no checksum.
  const none = sum === 0 && memory.bytes[at + 9] === protocolUdp;
  memory.view.setUint16(at + start + offset, none ? 0xffff : sum);
  return true;
}
