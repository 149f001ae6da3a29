import type { Buffers } from "./checksum.ts";

// struct virtio_net_hdr { u8 flags; u8 gso_type; u16 hdr_len, gso_size, csum_start, csum_offset; }
// of include/uapi/linux/virtio_net.h
export const offloadHeader = 10;
export const needsChecksum = 1;
export const gsoNone = 0;
export const gsoTcp4 = 1;
/** Alongside the type: the first segment alone says that the sender has slowed down. */
const gsoEcn = 0x80;

/** The kernel's word on a packet of a tun, before it. */
export const readOffload = (
  { bytes, view }: Buffers,
  at: number,
): { flags: number; type: number; size: number; start: number; offset: number } => ({
  flags: bytes[at] as number,
  type: (bytes[at + 1] as number) & ~gsoEcn,
  size: view.getUint16(at + 4, true),
  start: view.getUint16(at + 6, true),
  offset: view.getUint16(at + 8, true),
});

/** Writes that the packet behind needs no offload. */
export function writeNoOffload({ bytes }: Buffers, at: number): void {
  bytes.fill(0, at, at + offloadHeader);
}

/**
 * Segments of `size` bytes follow as one, behind headers of `header` bytes; TCP begins at `start`.
 */
export function writeTcpOffload(
  { bytes, view }: Buffers,
  at: number,
  {
    header,
    size,
    start,
  }: { readonly header: number; readonly size: number; readonly start: number },
): void {
  bytes[at] = needsChecksum;
  bytes[at + 1] = gsoTcp4;
  view.setUint16(at + 2, header, true);
  view.setUint16(at + 4, size, true);
  view.setUint16(at + 6, start, true);
  view.setUint16(at + 8, tcpChecksum, true);
}

/** The offsets of fields in a TCP header. */
export const tcpSequence = 4;
export const tcpAcknowledged = 8;
export const tcpOffset = 12;
export const tcpFlags = 13;
export const tcpWindow = 14;
export const tcpChecksum = 16;
export const tcpUrgent = 18;
export const tcpHeader = 20;
export const flagFin = 0x01;
export const flagPush = 0x08;
export const flagAck = 0x10;
export const flagReduced = 0x80;
