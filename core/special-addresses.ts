import {
  type Cidr,
  contains,
  familyOf,
  type Ip,
  ipFromBytes,
  ipToBytes,
  networkFinder,
  parseCidr,
} from "./address.ts";
import { type IpRange, parseIpRange } from "./ip-range.ts";

const networks = (...texts: readonly string[]): readonly Cidr[] =>
  texts.map((text) => parseCidr(text));

/** Link-local IPv4 addresses, at which every cloud serves its metadata and keys. */
export const metadata4 = parseCidr("169.254.0.0/16");

/**
 * The IPv6 addresses at which clouds serve their metadata: four large ones.
 */
export const metadata6: readonly Cidr[] = networks(
  "fd00:ec2::254/128",
  "fd20:ce::254/128",
  "fd00:42::42/128",
  "fd00:c1::a9fe:a9fe/128",
);

/**
 * Addresses that lead nowhere on the internet, or to a place inside: the IANA registries of
 * special-purpose addresses (RFC 6890) without documentation's, which lead nowhere at all.
 */
const internal: readonly Cidr[] = networks(
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "224.0.0.0/3",
);

/** RFC 6052: the last four bytes are an IPv4 address, to which the network translates. */
const translated = parseCidr("64:ff9b::/96");
const globalUnicast = parseCidr("2000::/3");
/** IETF protocol assignments with Teredo (RFC 2928), and 6to4 (RFC 7526): tunnels to others. */
const tunnels: readonly Cidr[] = networks("2001::/23", "2002::/16");

/** All addresses for which `isInternal` holds, for rules of the kernel. */
export const internalRanges: readonly IpRange[] = [
  ...internal,
  "::-64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff",
  ...internal.map((network) => {
    const [address = "", length = ""] = network.split("/");
    return `64:ff9b::${hexPairs(address)}/${96 + Number(length)}`;
  }),
  "64:ff9b::1:0:0-1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
  ...tunnels,
  "4000::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
].map((text) => parseIpRange(text));

/** An IPv4 address as the last two groups of an IPv6 address. */
function hexPairs(address: string): string {
  const [a = 0, b = 0, c = 0, d = 0] = address.split(".").map(Number);
  return [a * 256 + b, c * 256 + d].map((group) => group.toString(16)).join(":");
}

/**
 * Whether a public name has no business with the address: private, shared, loopback, link-local,
 * multicast, reserved, unspecified, mapped or tunnelled.
 */
export function isInternal(ip: Ip): boolean {
  if (familyOf(ip) === 4) return internal.some((network) => contains(network, ip));
  if (contains(translated, ip)) return isInternal(ipFromBytes(ipToBytes(ip).subarray(12)));
  return !contains(globalUnicast, ip) || tunnels.some((network) => contains(network, ip));
}

/** This network, loopback, link-local with the clouds' metadata, multicast and reserved. */
const unroutable = networkFinder([
  ...networks(
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/3",
    "::/96",
    "::ffff:0.0.0.0/96",
    "fe80::/10",
    "ff00::/8",
  ),
  ...metadata6,
]);

/** Whether no router takes packets to the address, or only to a cloud's metadata. */
export const isUnroutable = (ip: Ip): boolean => unroutable(ip) !== undefined;
