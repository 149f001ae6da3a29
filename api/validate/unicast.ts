import { familyOf, type Ip, ipToBytes, isLoopback } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";

/** What an address is when it is not that of one machine on a network; undefined when it is. */
function notUnicast(ip: Ip): string | undefined {
  const [first, second] = ipToBytes(ip) as unknown as [number, number];
  if (isLoopback(ip)) return "a loopback address";
  if (familyOf(ip) === 4) {
    if (first === 0) return "in 0.0.0.0/8, which means no network";
    if (first >= 240) return "reserved or broadcast";
    return first >= 224 ? "a multicast address" : undefined;
  }
  if (ip === "::") return "the unspecified address";
  if (ip.startsWith("::ffff:")) return "an IPv4 address in IPv6 clothes";
  if (first === 0xff) return "a multicast address";
  return first === 0xfe && (second & 0xc0) === 0x80 ? "link-local" : undefined;
}

/**
 * Throws `ADDRESS_INVALID` unless the address can belong to one machine.
 * IPv6 link-local ones pass as gateways alone: guests make their own.
 */
export function checkUnicast(ip: Ip, field: string, options: { linkLocal?: boolean } = {}): void {
  const what = notUnicast(ip);
  if (what === undefined || (what === "link-local" && options.linkLocal === true)) return;
  throw new PodnetError("ADDRESS_INVALID", `${ip} is ${what}`, {
    field,
    hint: "Give the unicast address of one machine",
    details: { address: ip },
  });
}
