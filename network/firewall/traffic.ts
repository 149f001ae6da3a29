import { type Cidr, type Family, contains, ipOf, lengthOf, parseCidr } from "../../core/address.ts";

/**
 * The bit in a packet's mark by which another program asks not to translate its address (kubelet's,
 * which flannel respects).
 */
export const passMark = "0x4000";

/**
 * Set on packets of other hosts' own addresses between two of our chains that forward, and nowhere
 * else (`nftables/senders-table.ts`).
 */
export const senderMark = "0x1000";

/**
 * Set on translated packets to what a pod has published, between two of our chains that forward
 * (`nftables/published-table.ts`): rules of iptables accept it.
 */
export const openedMark = "0x2000";

/** The bits of a mark without one of these. */
export const allBut = (bit: string): string => `0x${(0xffff_ffff - Number(bit)).toString(16)}`;

/** Groups: packets to them must not be answered to another address. */
export const multicast: Readonly<Record<Family, Cidr>> = {
  4: parseCidr("224.0.0.0/4"),
  6: parseCidr("ff00::/8"),
};

/** Without those that others of them contain, and in one order: no two share an address. */
export function outermost(cidrs: readonly Cidr[]): Cidr[] {
  const all = [...new Set(cidrs)].toSorted();
  const holds = (outer: Cidr, inner: Cidr): boolean =>
    outer !== inner && lengthOf(outer) < lengthOf(inner) && contains(outer, ipOf(inner));
  return all.filter((cidr) => !all.some((other) => holds(other, cidr)));
}
