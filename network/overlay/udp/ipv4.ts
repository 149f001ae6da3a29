import { type Buffers, folded, sumOf } from "./checksum.ts";

export const protocolIcmp = 1;
export const protocolTcp = 6;
export const protocolUdp = 17;
/** Bytes of a header without options. */
export const ipHeader = 20;

export const headerLength = ({ bytes }: Buffers, at: number): number =>
  ((bytes[at] as number) & 15) << 2;

/** Bytes of the IPv4 packet that stands in so many; 0 when none does, or not all of it. */
export function readPacketLength(memory: Buffers, at: number, length: number): number {
  if (length < ipHeader || (memory.bytes[at] as number) >> 4 !== 4) return 0;
  const header = headerLength(memory, at);
  const total = memory.view.getUint16(at + 2);
  return header < ipHeader || total < header || total > length ? 0 : total;
}

/** Counts a hop, and mends the header's checksum (RFC 1624). False when that was the last. */
export function lowerTtl({ bytes, view }: Buffers, at: number): boolean {
  const ttl = bytes[at + 8] as number;
  if (ttl <= 1) return false;
  bytes[at + 8] = ttl - 1;
  const sum = view.getUint16(at + 10) + 0x100;
  view.setUint16(at + 10, sum + (sum >= 0xffff ? 1 : 0));
  return true;
}

/** Makes a header's checksum right. */
export function sealHeader(memory: Buffers, at: number, length: number): void {
  memory.view.setUint16(at + 10, 0);
  memory.view.setUint16(at + 10, ~sumOf(memory, at, length));
}

/**
 * The part of the IP header that the payload's checksum includes: addresses, protocol and length.
 */
export function pseudoSum(memory: Buffers, at: number, length: number): number {
  const { bytes } = memory;
  return folded(sumOf(memory, at + 12, 8) + (bytes[at + 9] as number) + length);
}
