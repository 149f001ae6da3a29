import {
  type Cidr,
  contains,
  familyOf,
  ipOf,
  type Ip,
  type IpPrefix,
  lengthOf,
  type Mac,
  networkOf,
} from "../../../core/address.ts";
import type { Route } from "../../../linux/rtnetlink/route.ts";
import type { Variant } from "../../../network/model/rules.ts";
import { Errno, refuseIf } from "./errno.ts";
import { FakeIptables } from "./iptables.ts";
import { type FakeLink, FakeLinks, type FakeRoute, showAddress } from "./links.ts";
import { FakeNftables } from "./nftables.ts";

export interface ConnectedRoute {
  readonly destination: Cidr;
  readonly link: number;
}

/**
 * One host's kernel as far as podnet touches it: links, addresses, neighbours, settings, firewall.
 * Synchronous.
 */
export class FakeKernel {
  readonly links: FakeLinks;
  readonly iptables: Readonly<Record<Variant, FakeIptables>> = {
    nft: new FakeIptables("nft"),
    legacy: new FakeIptables("legacy"),
  };
  readonly ip6tables: Readonly<Record<Variant, FakeIptables>> = {
    nft: new FakeIptables("nft"),
    legacy: new FakeIptables("legacy"),
  };
  readonly nftables = new FakeNftables();
  #ipForward = "0";

  constructor(randomMac: () => Mac) {
    this.links = new FakeLinks(randomMac);
  }

  addAddress(index: number, prefix: IpPrefix): void {
    const link = this.links.get(index);
    const { addresses } = link;
    if (familyOf(prefix) === 6) {
      refuseIf(link.settings.get("disable_ipv6") !== "0", "EACCES");
      refuseIf(
        addresses.some((held) => ipOf(held.prefix) === ipOf(prefix)),
        "EEXIST",
      );
      addresses.push({ prefix, secondary: false });
      this.#notifyAddress(index, prefix, false);
      return;
    }
    const siblings = addresses.filter((held) => networkOf(held.prefix) === networkOf(prefix));
    refuseIf(
      siblings.some((held) => held.prefix === prefix),
      "EEXIST",
    );
    addresses.push({ prefix, secondary: siblings.length > 0 });
    this.links.hasLocalTable = true;
    this.#notifyAddress(index, prefix, false);
  }

  #notifyAddress(index: number, prefix: IpPrefix, gone: boolean): void {
    this.links.report({ kind: "address", gone, address: showAddress(index, prefix) });
  }

  /**
   * inet_del_ifa: an IPv4 address takes along those of its subnet that came after it
   * (promote_secondaries is 0).
   */
  deleteAddress(index: number, prefix: IpPrefix): void {
    const link = this.links.get(index);
    const found = link.addresses.find((held) => held.prefix === prefix);
    if (found === undefined) throw new Errno("EADDRNOTAVAIL");
    const goes = (held: typeof found): boolean =>
      held === found ||
      (!found.secondary && held.secondary && networkOf(held.prefix) === networkOf(prefix));
    link.addresses = link.addresses.filter((held) => !goes(held));
    // With a link's last IPv4 address its ARP entries go, permanent ones too (fib_disable_ip, Linux
    // 6.18).
    if (familyOf(prefix) === 4 && link.addresses.every((held) => familyOf(held.prefix) !== 4))
      leaveIpv4(link);
    this.#notifyAddress(index, prefix, true);
  }

  /**
   * fib_table_insert, ip6_route_add: behind those to the same destination, or `alone`: where there
   * is none.
   */
  addRoute(
    index: number,
    { onlink, ...wanted }: FakeRoute & { readonly onlink: boolean },
    alone: boolean,
  ): void {
    const { family, gateway } = wanted;
    // IPv4 looks for the way to the gateway first.
    refuseIf(
      !this.links.all.has(index) && family === 4 && gateway !== undefined && !onlink,
      "ENETUNREACH",
    );
    const link = this.links.get(index);
    const reached = (): boolean =>
      gateway === undefined ||
      onlink ||
      link.addresses.some(
        ({ prefix }) => familyOf(prefix) === family && contains(networkOf(prefix), gateway),
      );
    const direct = gateway === undefined || onlink;
    refuseIf(direct && !link.up, "ENETDOWN");
    refuseIf(onlink && family === 4 && !this.links.hasLocalTable, "EINVAL");
    refuseIf(!link.up || !reached(), family === 4 ? "ENETUNREACH" : "EHOSTUNREACH");
    const metric = wanted.metric === 0 && family === 6 ? 1024 : wanted.metric;
    const route = { ...wanted, metric };
    const all = [...this.links.all.values()].flatMap(({ routes }) => routes);
    const hasItsPlace = (held: FakeRoute): boolean =>
      held.destination === route.destination &&
      held.table === route.table &&
      held.metric === metric;
    refuseIf(
      link.routes.some((held) => JSON.stringify(held) === JSON.stringify(route)) ||
        (alone && all.some(hasItsPlace)),
      "EEXIST",
    );
    link.routes.push(route);
  }

  /** What is not said of it stands for any. */
  deleteRoute(index: number, unwanted: FakeRoute): void {
    const routes = this.links.all.get(index)?.routes ?? [];
    const at = routes.findIndex(
      (held) =>
        held.destination === unwanted.destination &&
        held.table === unwanted.table &&
        (unwanted.gateway === undefined || held.gateway === unwanted.gateway) &&
        (unwanted.protocol === 0 || held.protocol === unwanted.protocol) &&
        (unwanted.metric === 0 || held.metric === unwanted.metric),
    );
    refuseIf(at < 0, "ESRCH");
    routes.splice(at, 1);
  }

  /** The IPv4 routes that addresses bring: one a primary address, while its link is up. */
  connected(): ConnectedRoute[] {
    return [...this.links.all.values()].flatMap((link) =>
      link.up && link.name !== "lo"
        ? link.addresses
            .filter(
              ({ prefix, secondary }) =>
                familyOf(prefix) === 4 && !secondary && lengthOf(prefix) < 32,
            )
            .map(({ prefix }) => ({ destination: networkOf(prefix), link: link.index }))
        : [],
    );
  }

  /** The routes of a link, as rtnetlink reports them; with those that IPv4 addresses bring. */
  routesOf(index: number | undefined): Route[] {
    const brought = this.connected().map(({ destination, link }) => ({
      family: 4 as const,
      destination,
      link,
      table: 254,
      protocol: 2,
      metric: 0,
      scope: "link" as const,
    }));
    const made = [...this.links.all.values()].flatMap((link) =>
      link.routes.map((route) => ({
        ...route,
        link: link.index,
        scope: route.gateway === undefined ? ("link" as const) : ("global" as const),
      })),
    );
    return [...brought, ...made]
      .filter(({ link }) => index === undefined || link === index)
      .map((route) => ({ ...route, type: "unicast", onlink: false, dead: false }));
  }

  replaceNeighbour(index: number, address: Ip, mac: Mac): void {
    this.links.get(index).neighbours.set(address, mac);
  }

  deleteNeighbour(index: number, address: Ip): void {
    if (!this.links.get(index).neighbours.delete(address)) throw new Errno("ENOENT");
  }

  readSysctl(key: string): string {
    if (isForward(key)) return this.#ipForward;
    if (isIpv6Forward(key)) return this.links.ipv6Forwarding;
    const { link, setting } = this.#linkSetting(key);
    return link.settings.get(setting) as string;
  }

  writeSysctl(key: string, value: string): void {
    if (isForward(key)) {
      refuseIf(!/^-?\d+$/.test(value), "EINVAL");
      this.#ipForward = value;
      return;
    }
    if (isIpv6Forward(key)) {
      refuseIf(!/^-?\d+$/.test(value), "EINVAL");
      // addrconf_forward_change
      this.links.ipv6Forwarding = value;
      for (const { settings } of this.links.all.values()) settings.set("forwarding", value);
      return;
    }
    const { link, setting } = this.#linkSetting(key);
    refuseIf(!/^-?\d+$/.test(value), "EINVAL");
    // 2 wants a secret that is not set.
    refuseIf(setting === "addr_gen_mode" && !["0", "1", "3"].includes(value), "EINVAL");
    link.settings.set(setting, value);
    if (setting === "disable_ipv6" && value !== "0") leaveIpv6(link);
  }

  #linkSetting(key: string): { readonly link: FakeLink; readonly setting: string } {
    const [, name = "", setting = ""] = /^net\/ipv6\/conf\/([^/]+)\/([^/]+)$/.exec(key) ?? [];
    const link = this.links.find(name);
    if (link?.settings.has(setting) !== true) throw new Errno("ENOENT");
    return { link, setting };
  }
}

/** fib_disable_ip: so does what IPv4 has, but for addresses. */
function leaveIpv4(link: FakeLink): void {
  for (const ip of link.neighbours.keys()) if (familyOf(ip) === 4) link.neighbours.delete(ip);
  link.routes = link.routes.filter(({ family }) => family === 6);
}

/** addrconf_ifdown: what IPv6 has of a link goes. */
function leaveIpv6(link: FakeLink): void {
  link.routes = link.routes.filter(({ family }) => family === 4);
  link.addresses = link.addresses.filter(({ prefix }) => familyOf(prefix) === 4);
  for (const ip of link.neighbours.keys()) if (familyOf(ip) === 6) link.neighbours.delete(ip);
}

const isIpv6Forward = (key: string): boolean =>
  key.replaceAll(".", "/") === "net/ipv6/conf/all/forwarding";

const isForward = (key: string): boolean => key.replaceAll(".", "/") === "net/ipv4/ip_forward";
