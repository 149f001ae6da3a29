import { folded, sumOf, type Buffers } from "./checksum.ts";
import { headerLength, ipHeader, protocolTcp, pseudoSum } from "./ipv4.ts";
import {
  flagAck,
  flagPush,
  tcpAcknowledged,
  tcpFlags,
  tcpHeader,
  tcpOffset,
  tcpSequence,
  tcpUrgent,
  tcpWindow,
} from "./offload.ts";

/** Fragments, in either byte of their field but for "do not fragment". */
const isFragment = 0x3fff;
const doNotFragment = 0x4000;

/**
 * The length of both headers of a TCP packet with data that other packets may be joined to; 0 for
 * other packets.
 */
export function readJoinable(memory: Buffers, at: number, total: number): number {
  const { bytes, view } = memory;
  if (bytes[at + 9] !== protocolTcp || headerLength(memory, at) !== ipHeader) return 0;
  if ((view.getUint16(at + 6) & isFragment) !== 0 || total < ipHeader + tcpHeader) return 0;
  const tcp = at + ipHeader;
  const header = ipHeader + (((bytes[tcp + tcpOffset] as number) >> 4) << 2);
  if (header < ipHeader + tcpHeader || header >= total) return 0;
  return ((bytes[tcp + tcpFlags] as number) & ~flagPush) === flagAck ? header : 0;
}

/**
 * Whether two packets that may be joined belong to one connection and differ only by their place in
 * it.
 */
export function isNext(
  memory: Buffers,
  first: number,
  next: number,
  {
    header,
    count,
    data,
  }: { readonly header: number; readonly count: number; readonly data: number },
): boolean {
  const { bytes, view } = memory;
  // Type of service; flags; hops and protocol; addresses.
  if (bytes[first + 1] !== bytes[next + 1]) return false;
  const flags = view.getUint16(next + 6);
  if (view.getUint16(first + 6) !== flags) return false;
  // Packets that may be fragmented have increasing ids.
  const id = (view.getUint16(first + 4) + count) & 0xffff;
  if ((flags & doNotFragment) === 0 && view.getUint16(next + 4) !== id) return false;
  if (view.getUint16(first + 8) !== view.getUint16(next + 8)) return false;
  for (let i = 12; i < ipHeader + tcpSequence; i += 4)
    if (view.getUint32(first + i) !== view.getUint32(next + i)) return false;
  const one = first + ipHeader;
  const other = next + ipHeader;
  if ((view.getUint32(one + tcpSequence) + data) >>> 0 !== view.getUint32(other + tcpSequence))
    return false;
  if (view.getUint32(one + tcpAcknowledged) !== view.getUint32(other + tcpAcknowledged))
    return false;
  if (bytes[one + tcpOffset] !== bytes[other + tcpOffset]) return false;
  if (view.getUint16(one + tcpWindow) !== view.getUint16(other + tcpWindow)) return false;
  if (view.getUint16(one + tcpUrgent) !== view.getUint16(other + tcpUrgent)) return false;
  for (let i = ipHeader + tcpHeader; i < header; i += 4)
    if (view.getUint32(first + i) !== view.getUint32(next + i)) return false;
  return true;
}

/**
 * Whether both checksums of a TCP packet are right. What is joined gets new ones, which would hide
 * that they were not.
 */
export function isIntact(memory: Buffers, at: number, total: number): boolean {
  if (sumOf(memory, at, ipHeader) !== 0xffff) return false;
  const length = total - ipHeader;
  return folded(pseudoSum(memory, at, length) + sumOf(memory, at + ipHeader, length)) === 0xffff;
}
