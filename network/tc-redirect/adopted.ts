import { type Cidr, familyOf, type Ip, ipOf, type IpPrefix, type Mac } from "../../core/address.ts";
import type { LinkAddress } from "../../linux/rtnetlink/address.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import type { Neighbour } from "../../linux/rtnetlink/neighbour.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";

/**
 * The settings that a VM's interface takes over from a namespace's link, to replace it completely.
 */
export interface TakenOver {
  readonly mac: Mac;
  readonly mtu: number;
  /** The interface resolves no MACs, and uses those of `neighbours`. */
  readonly noArp?: true;
  readonly addresses: readonly IpPrefix[];
  /** Routes on the link itself come first: gateways of the others are reached by them. */
  readonly routes: readonly TakenRoute[];
  /** Neighbours that were set, not learnt. */
  readonly neighbours: readonly { readonly address: Ip; readonly mac: Mac }[];
}

export interface TakenRoute {
  readonly destination: Cidr;
  readonly gateway?: Ip;
  readonly source?: Ip;
  readonly mtu?: number;
  readonly advmss?: number;
  readonly metric?: number;
  /** The gateway is on the link although no address says so. */
  readonly onlink?: true;
}

export interface ObservedNamespaceLink {
  readonly link: Link & { readonly mac: Mac };
  readonly addresses: readonly LinkAddress[];
  readonly routes: readonly Route[];
  readonly neighbours: readonly Neighbour[];
}

const mainTable = 254;
/**
 * The protocol number of routes that the kernel made itself, and makes again in the guest: routes
 * to addresses' networks.
 */
const madeByKernel = 2;
/** The default metrics of IPv4 and IPv6 routes. */
const usualMetric = { 4: 0, 6: 1024 } as const;

/**
 * The settings of a link that a guest should get. The guest's kernel makes some by itself, which
 * are left out: link-local addresses, routes to its addresses' networks, neighbours that it learns.
 * Pure.
 */
export function takenOver(observed: ObservedNamespaceLink): TakenOver {
  const { link, addresses, routes, neighbours } = observed;
  const taken = routes.filter(
    ({ table, protocol, type, link: by }) =>
      table === mainTable && protocol !== madeByKernel && type === "unicast" && by === link.index,
  );
  const direct = taken.filter(({ gateway }) => gateway === undefined);
  return {
    mac: link.mac,
    mtu: link.mtu,
    ...(link.noArp ? { noArp: true as const } : {}),
    addresses: addresses
      .filter(({ scope, prefix }) => scope !== "link" && !isLinkLocal(ipOf(prefix)))
      .map(({ prefix }) => prefix),
    routes: [...direct, ...taken.filter((route) => !direct.includes(route))].map(takenRoute),
    neighbours: neighbours.flatMap(({ address, mac, state }) =>
      state === "permanent" && mac !== undefined && !isMulticast(address) ? [{ address, mac }] : [],
    ),
  };
}

function takenRoute({
  family,
  destination,
  gateway,
  source,
  mtu,
  advmss,
  metric,
  onlink,
}: Route): TakenRoute {
  return {
    destination,
    ...(gateway === undefined ? {} : { gateway }),
    ...(source === undefined ? {} : { source }),
    ...(mtu === undefined ? {} : { mtu }),
    ...(advmss === undefined ? {} : { advmss }),
    ...(metric === usualMetric[family] ? {} : { metric }),
    ...(onlink ? { onlink } : {}),
  };
}

const isLinkLocal = (ip: Ip): boolean => ip.startsWith("fe80:");

const isMulticast = (ip: Ip): boolean =>
  familyOf(ip) === 6 ? ip.startsWith("ff") : Number(ip.slice(0, ip.indexOf("."))) >= 224;
