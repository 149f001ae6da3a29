import { familyOf, type Ip, ipOf } from "../../core/address.ts";
import type { TakenOver, TakenRoute } from "./adopted.ts";

/** The abilities of the VM's kernel, and of the program that sets the guest up. */
export interface GuestAbilities {
  readonly ipv6: boolean;
}

/**
 * The settings that this guest accepts: a guest without IPv6 would refuse all of them for one IPv6
 * address. A route with such a gateway or source is left out, too (RFC 8950: IPv4 by a gateway of
 * IPv6). Pure.
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
