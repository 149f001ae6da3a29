import { type Family, type Ip, ipFromBytes } from "../../core/address.ts";

/**
 * Echo requests and what comes back of them: RFC 792, RFC 4443. Pure.
 */

/** Identifies one request. */
export interface EchoId {
  readonly id: number;
  readonly sequence: number;
}

/** A message that may be about an echo request of ours. */
export type IcmpMessage =
  | (EchoId & { readonly kind: "reply"; readonly from: Ip; readonly payload: Uint8Array })
  /**
   * A request was too long for a link on its way, which takes `mtu` bytes; 0 when the router does
   * not say.
   */
  | (EchoId & { readonly kind: "too-big"; readonly to: Ip; readonly mtu: number })
  /**
   * A host says that the request cannot get to where it was sent: RFC 792 type 3, RFC 4443 type 1.
   */
  | (EchoId & { readonly kind: "unreachable"; readonly from: Ip; readonly to: Ip });

const echoHeader = 8;
/** Bytes before the payload, in a packet. */
export const echoOverhead: Readonly<Record<Family, number>> = {
  4: 20 + echoHeader,
  6: 40 + echoHeader,
};

const types = {
  4: { request: 8, reply: 0 },
  6: { request: 128, reply: 129 },
} as const;
const unreachable4 = { type: 3, fragmentationNeeded: 4 } as const;
const packetTooBig6 = 2;
const unreachable6 = 1;
const protocolIcmp: Readonly<Record<Family, number>> = { 4: 1, 6: 58 };

/** An echo request. Its checksum is for the kernel to fill in where that is of IPv6. */
export function echoRequest(
  family: Family,
  { id, sequence }: EchoId,
  payload: Uint8Array,
): Uint8Array {
  const message = new Uint8Array(echoHeader + payload.length);
  const view = new DataView(message.buffer);
  message[0] = types[family].request;
  view.setUint16(4, id);
  view.setUint16(6, sequence);
  message.set(payload, echoHeader);
  if (family === 4) view.setUint16(2, internetChecksum(message));
  return message;
}

/** RFC 1071. */
export function internetChecksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2)
    sum += ((bytes[i] as number) << 8) | (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

/**
 * Parses a message from a raw socket for ICMP: with IPv4 a whole packet, with IPv6 the message
 * alone, whose sender the kernel reports separately. Undefined when it is not about an echo
 * request.
 */
export function parseIcmp(
  family: Family,
  bytes: Uint8Array,
  sender: Ip | undefined,
): IcmpMessage | undefined {
  if (family === 6) return sender === undefined ? undefined : parseMessage(6, bytes, sender);
  const packet = payloadOf(4, bytes);
  return packet === undefined ? undefined : parseMessage(4, packet.payload, packet.from);
}

interface Packet {
  readonly from: Ip;
  readonly to: Ip;
  readonly payload: Uint8Array;
}

/**
 * The payload of an IP packet, if that is ICMP and its beginning is there; packets with extension
 * headers of IPv6 are ignored.
 */
function payloadOf(family: Family, bytes: Uint8Array): Packet | undefined {
  const [first = 0] = bytes;
  const header = family === 4 ? (first & 15) * 4 : 40;
  if (first >> 4 !== family || header < 20 || bytes.length < header) return undefined;
  if (bytes[family === 4 ? 9 : 6] !== protocolIcmp[family]) return undefined;
  const [at, length] = family === 4 ? [12, 4] : [8, 16];
  return {
    from: ipFromBytes(bytes.subarray(at, at + length)),
    to: ipFromBytes(bytes.subarray(at + length, at + 2 * length)),
    payload: bytes.subarray(header),
  };
}

function parseMessage(family: Family, message: Uint8Array, from: Ip): IcmpMessage | undefined {
  if (message.length < echoHeader) return undefined;
  const view = new DataView(message.buffer, message.byteOffset);
  const [type, code] = message;
  if (type === types[family].reply && code === 0)
    return { kind: "reply", from, ...idOf(view), payload: message.subarray(echoHeader) };
  const tooBig =
    family === 4
      ? type === unreachable4.type && code === unreachable4.fragmentationNeeded
      : type === packetTooBig6;
  const unreachable = type === (family === 4 ? unreachable4.type : unreachable6);
  if (!tooBig && !unreachable) return undefined;
  // The packet that did not get there follows, or the beginning of it.
  const packet = payloadOf(family, message.subarray(echoHeader));
  if (packet === undefined || packet.payload.length < echoHeader) return undefined;
  if (packet.payload[0] !== types[family].request) return undefined;
  const request = new DataView(packet.payload.buffer, packet.payload.byteOffset);
  if (!tooBig) return { kind: "unreachable", from, to: packet.to, ...idOf(request) };
  const mtu = family === 4 ? view.getUint16(6) : view.getUint32(4);
  return { kind: "too-big", to: packet.to, ...idOf(request), mtu };
}

const idOf = (view: DataView): EchoId => ({ id: view.getUint16(4), sequence: view.getUint16(6) });
