import { type Ip, ipOf, ipToBytes, lengthOf, type Mac, macToBytes } from "../../core/address.ts";
import { icmp6 } from "./packets.ts";
import type { PortLease } from "./lease.ts";
import { domainBytes } from "./names.ts";

/** RFC 4861 section 4.6, RFC 4191 (routes), RFC 8106 (DNS). */
const options = { linkLayer: 1, prefix: 3, mtu: 5, route: 24, dns: 25, search: 31 } as const;

/** M and O: addresses and the rest are asked for by DHCPv6. */
const managedAndOther = 0xc0;
/** L alone: the prefix is on the link, and no address is made from it. */
const onLink = 0x80;
const forEver = 0xffff_ffff;

/** Seconds between two unsolicited advertisements. */
export const advertiseEveryS = 900;
/**
 * Lifetime of a router and its information in seconds, the largest of RFC 8319: guests get along
 * without podnetd for most of a day.
 */
const lifetimeS = 65_535;

type V6 = NonNullable<PortLease["v6"]>;

/** A router advertisement, but for its checksum. */
export function writeAdvertisement(
  { v6, mtu, search }: PortLease & { readonly v6: V6 },
  router: Mac,
): Uint8Array {
  const lifetime = v6.isRouter ? lifetimeS : 0;
  return Uint8Array.from([
    icmp6.routerAdvertisement,
    0,
    0,
    0,
    64,
    managedAndOther,
    ...u16(lifetime),
    // Times of reachability and of retransmission: the guest's own.
    ...u32(0),
    ...u32(0),
    ...option(options.linkLayer, macToBytes(router)),
    ...option(options.mtu, [0, 0, ...u32(mtu)]),
    ...v6.onLink.flatMap((prefix) =>
      option(options.prefix, [
        lengthOf(prefix),
        onLink,
        ...u32(forEver),
        ...u32(forEver),
        ...u32(0),
        ...ipToBytes(ipOf(prefix)),
      ]),
    ),
    ...v6.routes.flatMap((prefix) =>
      option(options.route, [lengthOf(prefix), 0, ...u32(lifetimeS), ...ipToBytes(ipOf(prefix))]),
    ),
    ...(v6.dns.length === 0 ? [] : option(options.dns, [0, 0, ...u32(lifetimeS), ...all(v6.dns)])),
    ...(search.length === 0
      ? []
      : option(options.search, [0, 0, ...u32(lifetimeS), ...domainBytes(search)])),
  ]);
}

const all = (ips: readonly Ip[]): number[] => ips.flatMap((ip) => [...ipToBytes(ip)]);
const u16 = (value: number): number[] => [value >> 8, value & 255];
const u32 = (value: number): number[] => [24, 16, 8, 0].map((shift) => (value >>> shift) & 255);

/** An option, filled up with zeros to units of eight bytes. */
function option(type: number, value: Uint8Array | readonly number[]): number[] {
  const units = Math.ceil((2 + value.length) / 8);
  const bytes = [type, units, ...value];
  while (bytes.length < units * 8) bytes.push(0);
  return bytes;
}
