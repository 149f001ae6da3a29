import { familyOf, type Ip, type IpPrefix, ipOf, networkOf } from "../../../core/address.ts";
import type { PortLease } from "../../dhcp/lease.ts";
import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import { defaultRoutes } from "./plan-routes.ts";
import type { InterfacePlan, NicInterface } from "../store/pod-plan.ts";
import type { NetworkSnapshot, SubnetSnapshot } from "../plan/snapshot.ts";

/** What an answer says of a network: its gateways. */
export type AnsweringNetwork = Pick<NetworkSnapshot, "name"> & {
  readonly subnets: readonly Pick<SubnetSnapshot, "gateway">[];
};

/**
 * Whether podnetd answers a guest that asks for the interface's addresses itself. On a foreign
 * bridge or tap it does not; the owner's DHCP server may.
 */
export const isAnswered = ({
  network,
  addresses,
}: Pick<InterfacePlan, "network" | "addresses">): boolean =>
  network !== undefined && addresses.length > 0;

/** The gateways of an interface's network, which answer. */
export const answeringGateways = (
  { network }: Pick<InterfacePlan, "network">,
  networks: readonly AnsweringNetwork[],
): readonly Ip[] =>
  networks.find(({ name }) => name === network)?.subnets.map(({ gateway }) => ipOf(gateway)) ?? [];

/**
 * The lease of a guest that asks for it on a port; undefined where podnetd does not answer. Pure.
 */
export function leaseOf(
  guest: GuestConfig,
  each: NicInterface,
  networks: readonly AnsweringNetwork[],
): PortLease | undefined {
  const { addresses, gateways, mtu, nic } = each;
  if (!isAnswered(each)) return undefined;
  const answering = answeringGateways(each, networks);
  const server = answering.find((ip) => familyOf(ip) === 4);
  const router6 = answering.find((ip) => familyOf(ip) === 6);
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

/** A port's lease for people. */
export function leaseLines(each: NicInterface, lease: PortLease | undefined): string[] {
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
