import {
  familyOf,
  type Ip,
  ipFromBytes,
  ipOf,
  ipToBigInt,
  type Mac,
  macToBytes,
} from "../../../core/address.ts";
import {
  hasFamily,
  type NetworkFragment,
  type PluggedFragment,
  type PortDesired,
  portGroup,
} from "../../model/desired.ts";
import type { Element } from "../../model/nftables-sets.ts";
import { networkMark } from "../../model/ownership.ts";

/**
 * The elements of a pod's or container's ports at the guard: with them, a port sends what is its
 * own. Each port's mark owns its elements. Pure.
 */
export const portElements = ({ ports, sources = [] }: PluggedFragment): Element[] =>
  ports.flatMap((port) => elementsOf(port, beyond(port, sources)));

/** A network's elements of the guard at its ports; `mac` is its bridge's. Pure. */
export function bridgeGuardElements(network: NetworkFragment, mac: Mac): Element[] {
  const group = `${portGroup(network.bridge)}`;
  const { ethertypes = [], vlanFiltering } = network;
  const elements: Omit<Element, "owner">[] = [
    ...(hasFamily(network, 6)
      ? [{ set: "links" as const, key: `${group} . ${hex(linkLocalOf(mac))}` }]
      : [{ set: "without6" as const, key: group }]),
    { set: "known", key: `${group} . ${macNumber(mac)}` },
    // (A bridge that filters VLANs takes the tag of a port's own VLAN off.)
    ...(vlanFiltering === true ? [] : [{ set: "trunks" as const, key: group }]),
    ...ethertypes.map((type) => ({
      set: "ethertypes" as const,
      key: `${group} . 0x${type.toString(16)}`,
    })),
  ];
  const owner = networkMark(network.key);
  return elements.map((element) => ({ ...element, owner }));
}

/** What a port may send, in one line. */
export function describePort(
  port: PortDesired,
  sources: NonNullable<PluggedFragment["sources"]> = [],
): string {
  if (port.guard === "off") return `guard ${port.tap} off`;
  const { macs, held } = ownOf(port, beyond(port, sources));
  const families = unknownFamilies(port).map((family) => `any IPv${family} address`);
  const free = port.guard === "own-link-local" && hasSix(port) ? ["a link-local address"] : [];
  return `guard ${port.tap} sends as ${[...macs, ...held, ...families, ...free].join(", ")}`;
}

/** The addresses of a pod's `lo` that it sends from by this port. */
const beyond = (port: PortDesired, sources: NonNullable<PluggedFragment["sources"]>): Ip[] =>
  sources.filter(({ tap }) => tap === port.tap).map(({ address }) => address);

function elementsOf(port: PortDesired, more: readonly Ip[]): Element[] {
  const { alias: owner, guard } = port;
  const tap = `"${port.tap}"`;
  if (guard === "off") return [{ set: "unguarded", key: tap, owner }];
  const group = `${portGroup(port.bridge)}`;
  const { macs, links, held } = ownOf(port, more);
  const keys = [
    ...macs.flatMap((mac) => [
      ["macs", `${tap} . ${macNumber(mac)}`] as const,
      ["known", `${group} . ${macNumber(mac)}`] as const,
    ]),
    ...macs.flatMap((mac) =>
      held
        .filter((ip) => familyOf(ip) === 4)
        .map((ip) => ["senders4", `${tap} . ${ip} . ${macNumber(mac)}`] as const),
    ),
    ...held.map((ip) =>
      familyOf(ip) === 4
        ? (["addresses4", `${tap} . ${ip}`] as const)
        : (["addresses6", `${tap} . ${hex(ip)}`] as const),
    ),
    ...heldOnNetwork(port).map((ip) => ["held4", `${group} . ${ip}`] as const),
    ...links.map((ip) => ["links", `${group} . ${hex(ip)}`] as const),
    ...unknownFamilies(port).map((family) => [`any${family}`, tap] as const),
    ...(port.fresh === true ? [["fresh", tap] as const] : []),
    ...(port.macMayChange === true ? [["changing", tap] as const] : []),
    ...(guard === "own-link-local" && hasSix(port) ? [["choosing", tap] as const] : []),
  ];
  return keys.map(([set, key]) => ({ set, key, owner }));
}

/** The link-local addresses made of a port's MACs; none without IPv6. Pure. */
export const portLinks = (port: PortDesired): readonly Ip[] => ownOf(port, []).links;

const hasSix = ({ guestAddresses }: PortDesired): boolean =>
  guestAddresses.some((prefix) => familyOf(prefix) === 6);

/** The MACs of a port, the link-local addresses made of them, and all of its addresses. */
function ownOf(port: PortDesired, more: readonly Ip[]) {
  const macs = [...new Set([port.guestMac, ...(port.otherMacs ?? [])])];
  const links = hasSix(port) ? macs.map(linkLocalOf) : [];
  const own = port.guestAddresses.map(ipOf);
  const held = [...new Set([...own, ...(port.otherAddresses ?? []), ...more, ...links])];
  return { macs, links, held };
}

/** On a foreign bridge, ports in different VLANs may have one address. */
const heldOnNetwork = ({ foreign, guestAddresses }: PortDesired): Ip[] =>
  foreign === true ? [] : guestAddresses.map(ipOf).filter((ip) => familyOf(ip) === 4);

/**
 * On a foreign bridge, podnet knows no more than the addresses it was given: another DHCP server or
 * router may give a guest its IPv4 address where podnet gave none, and further IPv6 addresses in
 * any case.
 */
function unknownFamilies({ foreign, guestAddresses }: PortDesired): (4 | 6)[] {
  if (foreign !== true) return [];
  return guestAddresses.some((prefix) => familyOf(prefix) === 4) ? [6] : [4, 6];
}

/** RFC 4291, appendix A: as Linux makes the link-local address of a link by default. */
function linkLocalOf(mac: Mac): Ip {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = macToBytes(mac);
  return ipFromBytes(Uint8Array.of(0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f));
}

const hex = (ip: Ip): string => `0x${ipToBigInt(ip).toString(16)}`;

const macNumber = (mac: Mac): string => `0x${BigInt(`0x${mac.replaceAll(":", "")}`).toString(16)}`;
