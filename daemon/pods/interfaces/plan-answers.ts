import { familyOf, type IpPrefix, ipOf, networkOf } from "../../../core/address.ts";
import type { PortLease } from "../../dhcp/lease.ts";
import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import { defaultRoutes } from "./plan-routes.ts";
import type { InterfacePlan, NicInterface } from "../store/pod-plan.ts";
import type { Snapshot } from "../plan/snapshot.ts";

/**
 * An interface of a guest that asks for its addresses itself, with the gateways that answer: the
 * network's own. On a foreign bridge or tap podnetd answers no guest; the owner's DHCP server may.
 */
export function answered(
  each: InterfacePlan,
  { networks }: Pick<Snapshot, "networks">,
): InterfacePlan {
  const network = networks.find(({ name }) => name === each.network);
  if (network === undefined || each.addresses.length === 0) return each;
  return { ...each, answeredBy: network.subnets.map(({ gateway }) => ipOf(gateway)) };
}

/** The lease that podnetd answers on a port; undefined where podnetd does not answer. */
export function leaseOf(guest: GuestConfig, each: NicInterface): PortLease | undefined {
  const { answeredBy, addresses, gateways, mtu, nic } = each;
  if (answeredBy === undefined) return undefined;
  const server = answeredBy.find((ip) => familyOf(ip) === 4);
  const router6 = answeredBy.find((ip) => familyOf(ip) === 6);
  const [v4] = addresses.filter(isFour);
  const v6 = addresses.filter((address) => !isFour(address));
  const byDefault = new Set(defaultRoutes(each).map(({ destination }) => destination));
  const routes = guest.routes.filter(
    (route) => route.interface === each.guestName && !byDefault.has(route.destination),
  );
  const routes6 = routes.filter(({ destination }) => familyOf(destination) === 6);
  const router = gateways.find(({ gateway }) => familyOf(gateway) === 4)?.gateway;
  const { servers = [], search = [] } = guest.dns ?? {};
  return {
    mac: nic.mac,
    mtu,
    hostname: guest.hostname ?? "",
    search,
    ...(v4 === undefined || server === undefined
      ? {}
      : {
          v4: {
            address: v4,
            server,
            ...(router === undefined ? {} : { router }),
            routes: routes
              .filter(({ destination }) => familyOf(destination) === 4)
              .map(({ destination, gateway }) => ({
                destination,
                ...(gateway === undefined ? {} : { gateway }),
              })),
            dns: servers.filter((ip) => familyOf(ip) === 4),
          },
        }),
    ...(v6.length === 0
      ? {}
      : {
          v6: {
            addresses: v6,
            onLink: [
              ...new Set([
                ...v6.map(networkOf),
                ...routes6.flatMap(({ destination, gateway }) =>
                  gateway === undefined ? [destination] : [],
                ),
              ]),
            ],
            isRouter: gateways.some(({ gateway }) => gateway === router6),
            routes: routes6.flatMap(({ destination, gateway }) =>
              gateway !== undefined && gateway === router6 ? [destination] : [],
            ),
            dns: servers.filter((ip) => familyOf(ip) === 6),
          },
        }),
  };
}

const isFour = (address: IpPrefix): boolean => familyOf(address) === 4;

/** The lease that a port's guest gets, for people. */
export function leaseLines(guest: GuestConfig, each: NicInterface): string[] {
  const lease = leaseOf(guest, each);
  if (lease === undefined) return [];
  const { mac, mtu, hostname, search, v4, v6 } = lease;
  const dns = (servers: readonly string[]): string =>
    servers.length === 0 ? "" : ` dns ${servers.join(" ")}`;
  const domains = search.length === 0 ? "" : ` search ${search.join(" ")}`;
  const by = `${mac} by ${each.nic.tap}:`;
  return [
    ...(v4 === undefined
      ? []
      : [
          `DHCPv4 to ${by} ${v4.address} from ${v4.server}${v4.router === undefined ? "" : ` router ${v4.router}`}${v4.routes
            .map(({ destination, gateway }) => ` route ${destination} ${gateway ?? "on link"}`)
            .join("")} mtu ${mtu} hostname ${hostname}${dns(v4.dns)}${domains}`,
        ]),
    ...(v6 === undefined
      ? []
      : [
          `router advertisement to ${by} ${v6.isRouter ? "default router" : "no default router"}${v6.onLink
            .map((network) => ` on link ${network}`)
            .join("")}${v6.routes.map((network) => ` route ${network}`).join("")} mtu ${mtu}`,
          `DHCPv6 to ${by} ${v6.addresses.join(" ")}${dns(v6.dns)}${domains}`,
        ]),
  ];
}
