import { familyOf, type Ip, ipOf } from "../../core/address.ts";
import type { TakenOver, TakenRoute } from "./adopted.ts";

/** What the machine's own kernel and whoever sets it up can do. */
export interface GuestAbilities {
  readonly ipv6: boolean;
}

/**
 * What of a link's settings can be asked of this guest: one that does not speak IPv6 would refuse
 * the whole for an address of it. A route goes with its gateway or source, too (RFC 8950: IPv4 by a
 * gateway of IPv6). Pure.
 */
export function forGuest(taken: TakenOver, { ipv6 }: GuestAbilities): TakenOver {
  if (ipv6) return taken;
  return {
    ...taken,
    addresses: taken.addresses.filter((prefix) => isIpv4(ipOf(prefix))),
    routes: taken.routes.filter((route) => addressesOf(route).every(isIpv4)),
    neighbours: taken.neighbours.filter(({ address }) => isIpv4(address)),
  };
}

const isIpv4 = (ip: Ip): boolean => familyOf(ip) === 4;

const addressesOf = ({ destination, gateway, source }: TakenRoute): Ip[] =>
  [ipOf(destination), gateway, source].filter((ip) => ip !== undefined);
