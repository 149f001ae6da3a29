import {
  type Ip,
  ipFromBytes,
  ipToBytes,
  type Ipv6,
  type Mac,
  macFromBytes,
  macToBytes,
} from "../../core/address.ts";

/**
 * A guest's relevant messages: a DHCP client's, a router solicitation, and packets that show its
 * addresses.
 */
export type Ask = { readonly from: Mac } & (
  | { readonly kind: "dhcp4"; readonly message: Uint8Array }
  | { readonly kind: "dhcp6"; readonly source: Ip; readonly message: Uint8Array }
  | { readonly kind: "router-solicitation"; readonly source: Ip }
  /** ARP with its own address in it, or a question before it takes one or because it uses one. */
  | { readonly kind: "shows"; readonly address: Ip }
);

export const ports = { server4: 67, client4: 68, client6: 546, server6: 547 } as const;

const ethernetSize = 14;
export const etherTypes = { ipv4: 0x0800, arp: 0x0806, ipv6: 0x86dd } as const;
export const protocols = { udp: 17, icmp6: 58 } as const;
/** RFC 4861. */
export const icmp6 = {
  routerSolicitation: 133,
  routerAdvertisement: 134,
  neighbourSolicitation: 135,
};

const ip = (bytes: Uint8Array, at: number, size: 4 | 16): Ip =>
  ipFromBytes(bytes.subarray(at, at + size));
/** Bytes beyond the end are zero. */
const u8 = (bytes: Uint8Array, at: number): number => bytes[at] ?? 0;
const u16 = (bytes: Uint8Array, at: number): number => (u8(bytes, at) << 8) | u8(bytes, at + 1);

/**
 * Reads a frame that a guest sent; undefined when it is not of concern, or cut short. Checksums are
 * not looked at: what comes out of a tap may not have any yet, and has passed no wire.
 */
export function parseAsk(frame: Uint8Array): Ask | undefined {
  if (frame.length < ethernetSize) return undefined;
  const from = macFromBytes(frame.subarray(6, 12));
  const rest = frame.subarray(ethernetSize);
  switch (u16(frame, 12)) {
    case etherTypes.arp:
      return arp(from, rest);
    case etherTypes.ipv4:
      return ipv4(from, rest);
    case etherTypes.ipv6:
      return ipv6(from, rest);
    default:
      return undefined;
  }
}

/** RFC 826, of Ethernet and IPv4. */
function arp(from: Mac, bytes: Uint8Array): Ask | undefined {
  if (bytes.length < 28 || u16(bytes, 0) !== 1 || u16(bytes, 2) !== etherTypes.ipv4)
    return undefined;
  const address = ip(bytes, 14, 4);
  return address === "0.0.0.0" ? undefined : { kind: "shows", from, address };
}

function ipv4(from: Mac, bytes: Uint8Array): Ask | undefined {
  const header = (u8(bytes, 0) & 15) * 4;
  if (u8(bytes, 0) >> 4 !== 4 || header < 20 || bytes[9] !== protocols.udp) return undefined;
  // A fragment: no client sends one.
  if ((u16(bytes, 6) & 0x3fff) !== 0) return undefined;
  const message = udp(bytes.subarray(header, u16(bytes, 2)), ports.server4);
  return message && { kind: "dhcp4", from, message };
}

function ipv6(from: Mac, bytes: Uint8Array): Ask | undefined {
  if (bytes.length < 40 || u8(bytes, 0) >> 4 !== 6) return undefined;
  const source = ip(bytes, 8, 16);
  const payload = bytes.subarray(40, 40 + u16(bytes, 4));
  if (bytes[6] === protocols.udp) {
    const message = udp(payload, ports.server6);
    return message && { kind: "dhcp6", from, source, message };
  }
  // Neighbour discovery is of its own link alone: its hop limit says that no router has passed it
  // on.
  if (bytes[6] !== protocols.icmp6 || bytes[7] !== 255) return undefined;
  if (payload[0] === icmp6.routerSolicitation && payload.length >= 8)
    return { kind: "router-solicitation", from, source };
  if (payload[0] !== icmp6.neighbourSolicitation || payload.length < 24) return undefined;
  // Who does not say where it asks from asks whether the address is free, to take it.
  return { kind: "shows", from, address: source === "::" ? ip(payload, 8, 16) : source };
}

function udp(bytes: Uint8Array, port: number): Uint8Array | undefined {
  const length = u16(bytes, 4);
  if (u16(bytes, 2) !== port || length < 8 || length > bytes.length) return undefined;
  return bytes.subarray(8, length);
}

/** One end of a frame. */
export interface End {
  readonly mac: Mac;
  readonly ip: Ip;
}

/** A frame with an UDP message over IPv4. */
export function frame4(from: End, to: End, message: Uint8Array): Uint8Array {
  const total = 28 + message.length;
  const header = new Uint8Array(20);
  header.set([0x45, 0, total >> 8, total & 255, 0, 0, 0, 0, 64, protocols.udp]);
  header.set(ipToBytes(from.ip), 12);
  header.set(ipToBytes(to.ip), 16);
  header.set(checksum(header), 10);
  const pseudo = [...ipToBytes(from.ip), ...ipToBytes(to.ip), 0, protocols.udp];
  return frame(from.mac, to.mac, etherTypes.ipv4, [
    header,
    udpBytes(ports.server4, ports.client4, message, pseudo),
  ]);
}

/** A frame with IPv6 and UDP. */
export const frame6 = (from: End, to: End, message: Uint8Array): Uint8Array =>
  packet6(from, to, protocols.udp, (pseudo) =>
    udpBytes(ports.server6, ports.client6, message, pseudo),
  );

/** A frame with an ICMPv6 message, whose checksum is yet to be filled in. */
export const frameIcmp6 = (from: End, to: End, message: Uint8Array): Uint8Array =>
  packet6(from, to, protocols.icmp6, (pseudo) => {
    const bytes = message.slice();
    bytes.set(checksum(Uint8Array.from([...pseudo, ...lengthOf(bytes), ...bytes])), 2);
    return bytes;
  });

function packet6(
  from: End,
  to: End,
  protocol: number,
  payload: (pseudo: readonly number[]) => Uint8Array,
): Uint8Array {
  const pseudo = [...ipToBytes(from.ip), ...ipToBytes(to.ip), 0, protocol];
  const bytes = payload(pseudo);
  const header = new Uint8Array(40);
  header.set([0x60, 0, 0, 0, ...lengthOf(bytes), protocol, 255]);
  header.set(ipToBytes(from.ip), 8);
  header.set(ipToBytes(to.ip), 24);
  return frame(from.mac, to.mac, etherTypes.ipv6, [header, bytes]);
}

const lengthOf = ({ length }: Uint8Array): readonly number[] => [length >> 8, length & 255];

function udpBytes(
  from: number,
  to: number,
  message: Uint8Array,
  pseudo: readonly number[],
): Uint8Array {
  const bytes = new Uint8Array(8 + message.length);
  bytes.set([from >> 8, from & 255, to >> 8, to & 255, ...lengthOf(bytes)]);
  bytes.set(message, 8);
  const sum = checksum(Uint8Array.from([...pseudo, ...lengthOf(bytes), ...bytes]));
  // RFC 768: zero means that there is no checksum, so a checksum of zero is written as 0xffff.
  bytes.set(sum[0] === 0 && sum[1] === 0 ? [255, 255] : sum, 6);
  return bytes;
}

function frame(from: Mac, to: Mac, type: number, parts: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat([
    macToBytes(to),
    macToBytes(from),
    Uint8Array.of(type >> 8, type & 255),
    ...parts,
  ]);
}

/** RFC 1071. */
export function checksum(bytes: Uint8Array): readonly [number, number] {
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 2) sum += u16(bytes, at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  const inverted = ~sum & 0xffff;
  return [inverted >> 8, inverted & 255];
}

/** The address every link has for all its nodes (RFC 4291). */
export const allNodes = "ff02::1" as Ipv6;
