import type { Frame } from "../../linux/packets/packet-socket.ts";

/**
 * Of a file with nanoseconds (https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html), in
 * this machine's byte order.
 */
const magic = 0xa1b23c4d;
const linkEthernet = 1;

/** The header of a pcap file. */
export function pcapHeader(snapBytes: number): Uint8Array {
  const bytes = new Uint8Array(24);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, magic, true);
  view.setUint16(4, 2, true);
  view.setUint16(6, 4, true);
  view.setUint32(16, snapBytes, true);
  view.setUint32(20, linkEthernet, true);
  return bytes;
}

/** Bytes in front of each frame. */
const recordHeaderSize = 16;

/** A frame's record in the file. */
export function pcapRecord({ timeNs, bytes, length }: Frame): Uint8Array {
  const record = new Uint8Array(recordHeaderSize + bytes.length);
  const view = new DataView(record.buffer);
  view.setUint32(0, Number(BigInt.asUintN(32, timeNs / 1_000_000_000n)), true);
  view.setUint32(4, Number(timeNs % 1_000_000_000n), true);
  view.setUint32(8, bytes.length, true);
  view.setUint32(12, length, true);
  record.set(bytes, recordHeaderSize);
  return record;
}
