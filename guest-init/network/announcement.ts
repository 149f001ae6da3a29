import { type Ip, type Mac, familyOf, ipToBytes, macToBytes } from "../../core/address.ts";
import { joinBytes } from "../protocol/bytes.ts";

const etherTypeArp = 0x0806;
const etherTypeIpv6 = 0x86dd;
const broadcast = Uint8Array.of(255, 255, 255, 255, 255, 255);
const noMac = new Uint8Array(6);
/** The frame's type, then Ethernet, IPv4, lengths 6 and 4, request. */
const arpRequest = Uint8Array.of(etherTypeArp >> 8, etherTypeArp & 255, 0, 1, 8, 0, 6, 4, 0, 1);

const join = (...parts: readonly (Uint8Array | readonly number[])[]): Uint8Array =>
  joinBytes(parts.map((part) => (part instanceof Uint8Array ? part : Uint8Array.from(part))));

/** A gratuitous ARP request (RFC 5227 2.3): everyone who knows the address learns its MAC anew. */
export function gratuitousArp(mac: Mac, ip: Ip): Uint8Array {
  const sender = macToBytes(mac);
  const address = ipToBytes(ip);
  return joinBytes([broadcast, sender, arpRequest, sender, address, noMac, address]);
}

/** Internet checksum (RFC 1071) of whole 16-bit words. */
function checksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2)
    sum += ((bytes[i] as number) << 8) | (bytes[i + 1] as number);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

/** All nodes of the link, ff02::1, and its Ethernet address (RFC 2464 7). */
const allNodes = Uint8Array.of(0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
const allNodesMac = [0x33, 0x33, 0, 0, 0, 1];
const icmpv6 = 58;

/** An unsolicited neighbour advertisement with the override flag (RFC 4861 4.4 and 7.2.6). */
export function neighbourAdvertisement(mac: Mac, ip: Ip): Uint8Array {
  const address = ipToBytes(ip);
  const option = [2, 1, ...macToBytes(mac)];
  const body = join([136, 0, 0, 0, 0x20, 0, 0, 0], address, option);
  const sum = checksum(join(address, allNodes, [0, 0, 0, body.length, 0, 0, 0, icmpv6], body));
  body[2] = sum >> 8;
  body[3] = sum & 255;
  return join(
    allNodesMac,
    macToBytes(mac),
    [etherTypeIpv6 >> 8, etherTypeIpv6 & 255],
    // Version 6, length, ICMPv6, hop limit 255 as neighbour discovery demands
    [0x60, 0, 0, 0, 0, body.length, icmpv6, 255],
    address,
    allNodes,
    body,
  );
}

const afPacket = 17;

/**
 * struct sockaddr_ll: family, protocol (network order), index, and the rest left to the frame's own
 * header.
 */
function linkAddress(index: number, etherType: number): Uint8Array {
  const address = new Uint8Array(20);
  const view = new DataView(address.buffer);
  view.setUint16(0, afPacket, true);
  view.setUint16(2, etherType, false);
  view.setInt32(4, index, true);
  address[11] = 6;
  return address;
}

/** A frame that leaves by a link. */
export interface Packet {
  /** struct sockaddr_ll of the link. */
  readonly to: Uint8Array;
  readonly frame: Uint8Array;
}

/** Says to the neighbours at a link that an address has this MAC now. */
export function announcement(index: number, mac: Mac, ip: Ip): Packet {
  const four = familyOf(ip) === 4;
  return {
    to: linkAddress(index, four ? etherTypeArp : etherTypeIpv6),
    frame: four ? gratuitousArp(mac, ip) : neighbourAdvertisement(mac, ip),
  };
}
