import { type Cidr, type Ip, ipOf, ipToBytes, lengthOf } from "../../core/address.ts";
import type { OverlayPeer, OverlaySide } from "./overlay.ts";

/**
 * Says why a peer must not be given routes. Whoever can write leases could otherwise lead this
 * host's own pods' traffic, or all of it, elsewhere.
 */
export function peerRefusal(
  side: OverlaySide,
  broadcasts: ReadonlySet<Ip> = none,
): (peer: OverlayPeer) => string | undefined {
  const network = bitsOf(side.network);
  const own = bitsOf(side.subnet);
  const seen = new Set<Cidr>();
  return (peer) => {
    const { subnet, publicIp } = peer;
    const bits = peerBits(peer);
    if (!isWithin(bits, network)) return `${subnet} is not in ${side.network}`;
    if (isWithin(bits, own) || isWithin(own, bits)) return `${subnet} is this host's own`;
    if (publicIp === side.publicIp) return `${publicIp} is this host's own address`;
    if (!isSingleHost(publicIp) || broadcasts.has(publicIp))
      return `${publicIp} is no address of a single host`;
    if (seen.has(subnet)) return `${subnet} is another peer's, too`;
    seen.add(subnet);
    return undefined;
  };
}

const none: ReadonlySet<Ip> = new Set();

/** Not unspecified, loopback, multicast or the limited broadcast: RFC 6890, RFC 4291. */
function isSingleHost(ip: Ip): boolean {
  if (ip.includes(":")) return ip !== "::" && ip !== "::1" && !/^ff[0-9a-f]{2}:/.test(ip);
  const first = Number(ip.slice(0, ip.indexOf(".")));
  const group = first >= 224 && first < 240;
  return first !== 0 && first !== 127 && !group && ip !== "255.255.255.255";
}

interface Bits {
  readonly bytes: Uint8Array;
  readonly length: number;
}

const bitsOf = (cidr: Cidr): Bits => ({ bytes: ipToBytes(ipOf(cidr)), length: lengthOf(cidr) });

const known = new WeakMap<OverlayPeer, Bits>();

/** A peer's subnet, parsed once: unchanged peers come again with every change of others. */
function peerBits(peer: OverlayPeer): Bits {
  const bits = known.get(peer) ?? bitsOf(peer.subnet);
  known.set(peer, bits);
  return bits;
}

/** Whether one network is part of another: on bytes, for there are thousands of them. */
function isWithin(inner: Bits, outer: Bits): boolean {
  if (inner.bytes.length !== outer.bytes.length || inner.length < outer.length) return false;
  for (let i = 0; i < outer.bytes.length; i++) {
    const bits = Math.min(8, Math.max(0, outer.length - i * 8));
    const mask = 0xff00 >> bits;
    if ((((inner.bytes[i] as number) ^ (outer.bytes[i] as number)) & mask & 0xff) !== 0)
      return false;
  }
  return true;
}
