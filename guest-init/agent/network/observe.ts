import { type IpPrefix, ipOf, isLoopback, parseIpPrefix } from "../../../core/address.ts";
import type { LinkState } from "../../../linux/rtnetlink/links/link.ts";
import { guestRoutes, isGlobal, observedInterface } from "../../network/observed.ts";
import type { GuestDns, ObservedGuest } from "../../protocol/configure.ts";
import { parseResolver, renderResolver } from "../../protocol/resolver.ts";
import { readText } from "../files.ts";
import { hostname, residentKib } from "../machine.ts";
import type { Netlink } from "./netlink.ts";
import { sys } from "../sys.ts";

/** Addresses of `lo`, without those that make it one. */
export const loopbackAddresses = (netlink: Netlink, index: number): IpPrefix[] =>
  netlink
    .addresses(index)
    .map(({ prefix }) => parseIpPrefix(prefix))
    .filter((prefix) => !isLoopback(ipOf(prefix)) && !prefix.startsWith("fe80:"));

/** Reported only where the host asked for it: an earlier host refuses unknown keys. */
interface AlsoReported {
  readonly loopback?: boolean;
  readonly attributes?: boolean;
  /** What resolv.conf should hold: parsing it is the slowest way to see that it does. */
  readonly dns?: GuestDns;
}

function observedResolver(expected: GuestDns | undefined): GuestDns {
  const text = readText("/etc/resolv.conf") ?? "";
  const asExpected = expected !== undefined && text === renderResolver(expected);
  return asExpected ? expected : parseResolver(text);
}

/** The current state of the guest according to its kernel; its links have just been queried. */
export function observe(
  netlink: Netlink,
  requestId: string,
  links: readonly LinkState[],
  reported: AlsoReported = {},
): ObservedGuest {
  const addresses = netlink.addresses(undefined, isGlobal);
  const { attributes = false } = reported;
  const lo = reported.loopback === true ? links.find(({ loopback }) => loopback) : undefined;
  return {
    requestId,
    hostname: hostname(),
    dns: observedResolver(reported.dns),
    interfaces: links.flatMap((link) => observedInterface(link, addresses, attributes)),
    ...(lo === undefined ? {} : { loopback: loopbackAddresses(netlink, lo.index) }),
    routes: guestRoutes(netlink.routes(), links, attributes),
    clockMs: Math.floor(sys.clock()),
    agentRssKib: residentKib(),
  };
}
