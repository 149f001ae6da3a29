import { familyOf, type Ip, ipToBytes, type Mac, macToBytes } from "../../core/address.ts";
import { checksum } from "../../daemon/dhcp/packets.ts";

/**
 * Frames as no program's socket sends them: any source port, flags and lengths. Checksums are
 * right, so that a kernel hands them up.
 */

/** One end of a packet. */
export interface RawEnd {
  readonly mac: Mac;
  readonly ip: Ip;
  readonly port: number;
}

export interface Packet {
  readonly from: RawEnd;
  readonly to: RawEnd;
}

const ethernetTypes = { 4: [8, 0], 6: [0x86, 0xdd] } as const;
const protocols = { tcp: 6, udp: 17 } as const;
const u16 = (value: number): readonly number[] => [(value >> 8) & 255, value & 255];
const u32 = (value: number): readonly number[] => [...u16(value >>> 16), ...u16(value & 0xffff)];

/** A frame with a datagram of UDP. */
export function udpFrame(packet: Packet, payload: Uint8Array): Uint8Array {
  const { from, to } = packet;
  const length = u16(8 + payload.length);
  return framed(packet, "udp", 6, [
    ...u16(from.port),
    ...u16(to.port),
    ...length,
    0,
    0,
    ...payload,
  ]);
}

export interface Segment {
  /** Bits of the flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32. */
  readonly flags: number;
  readonly sequence: number;
  readonly acknowledged: number;
  readonly payload?: Uint8Array;
}

/** A frame with a segment of TCP. */
export function tcpFrame(packet: Packet, segment: Segment): Uint8Array {
  const { from, to } = packet;
  const { flags, sequence, acknowledged, payload = new Uint8Array() } = segment;
  const ports = [...u16(from.port), ...u16(to.port)];
  const numbers = [...u32(sequence), ...u32(acknowledged)];
  // Five words of header without options, the widest window, and no checksum yet, nor anything
  // urgent.
  const rest = [5 << 4, flags, ...u16(65_535), 0, 0, 0, 0];
  return framed(packet, "tcp", 16, [...ports, ...numbers, ...rest, ...payload]);
}

/**
 * What matters of a segment of TCP in a frame; undefined when there is none. Ports are those of the
 * segment.
 */
export function parseSegment(frame: Uint8Array):
  | {
      readonly from: number;
      readonly to: number;
      readonly flags: number;
      readonly sequence: number;
    }
  | undefined {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  const four = frame[12] === 8 && frame[13] === 0 && frame[23] === protocols.tcp;
  const six = frame[12] === 0x86 && frame[13] === 0xdd && frame[20] === protocols.tcp;
  if (!four && !six) return undefined;
  const at = four ? 34 : 54;
  return {
    from: view.getUint16(at),
    to: view.getUint16(at + 2),
    flags: frame[at + 13] ?? 0,
    sequence: view.getUint32(at + 4),
  };
}

function framed(
  { from, to }: Packet,
  protocol: keyof typeof protocols,
  sumAt: number,
  segment: readonly number[],
): Uint8Array {
  const family = familyOf(from.ip);
  const addresses = [...ipToBytes(from.ip), ...ipToBytes(to.ip)];
  const number = protocols[protocol];
  const length = u16(segment.length);
  const body = Uint8Array.from(segment);
  body.set(checksum(Uint8Array.from([...addresses, 0, number, ...length, ...body])), sumAt);
  const header = Uint8Array.from(
    family === 4
      ? [0x45, 0, ...u16(20 + body.length), 0, 0, 0x40, 0, 64, number, 0, 0, ...addresses]
      : [0x60, 0, 0, 0, ...length, number, 64, ...addresses],
  );
  if (family === 4) header.set(checksum(header), 10);
  const ethernet = [...macToBytes(to.mac), ...macToBytes(from.mac), ...ethernetTypes[family]];
  return Uint8Array.from([...ethernet, ...header, ...body]);
}
