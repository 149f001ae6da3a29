import type { BridgePortSettings } from "../../../linux/rtnetlink/links/bridge-port.ts";
import type { Ip, IpPrefix, Mac } from "../../../core/address.ts";
import type { LinkAddress } from "../../../linux/rtnetlink/address.ts";
import type { RtnetlinkEvent } from "../../../linux/rtnetlink/event.ts";
import type { Link } from "../../../linux/rtnetlink/links/link.ts";
import type { BridgeSettings } from "../../../linux/rtnetlink/links/link-kind.ts";
import type { LinkChange, LinkRef, NewLink } from "../../../linux/rtnetlink/links/link-requests.ts";
import type { TokenBucket } from "../../../linux/rtnetlink/qdisc.ts";
import type { Route } from "../../../linux/rtnetlink/route.ts";
import { Errno, refuseIf } from "./errno.ts";

export interface FakeAddress {
  readonly prefix: IpPrefix;
  /**
   * IPv4: another address of the same subnet was there first, and takes this one along when it
   * goes.
   */
  readonly secondary: boolean;
}

export type FakeRoute = Pick<
  Route,
  "family" | "destination" | "gateway" | "table" | "protocol" | "metric" | "mtu" | "advmss"
>;

export interface FakeLink {
  readonly index: number;
  /** Undefined for hardware and `lo`. */
  readonly kind: "bridge" | "tun" | "veth" | "ifb" | undefined;
  name: string;
  mac: Mac;
  /** A program has set it: a bridge does not follow its ports any more (NET_ADDR_SET). */
  macSet: boolean;
  mtu: number;
  /**
   * A program has changed it: a bridge does not follow its ports any more (BROPT_MTU_SET_BY_USER).
   */
  mtuSet: boolean;
  up: boolean;
  group: number;
  alias: string | undefined;
  /** Index of its bridge; 0 for none. */
  master: number;
  isolated: boolean;
  learning: boolean;
  /** A port's only VLAN; 1 is the kernel's own choice. */
  vlan: number;
  vlanFiltering: boolean;
  fdbMaxLearned: number;
  noLinkLocalLearn: boolean;
  nfCallIptables: boolean;
  nfCallIp6tables: boolean;
  /** Index of a veth's other end, and the namespace that it is in. */
  peer: number;
  peerHome: FakeLinks | undefined;
  /** What leaves by it is held to this rate; undefined: what it was born with. */
  queue: TokenBucket | undefined;
  /** Inside of that one. */
  inner: TokenBucket | undefined;
  /**
   * Where filters on what comes in send it, by index, 0 for a link that has gone; undefined: it has
   * no place for filters.
   */
  filters: number[] | undefined;
  /** Made on request; those that addresses bring are not here. */
  routes: FakeRoute[];
  addresses: FakeAddress[];
  readonly neighbours: Map<Ip, Mac>;
  /** net.ipv6.conf.NAME. */
  readonly settings: Map<string, string>;
}

const noMac = "00:00:00:00:00:00" as Mac;
const minMtu = 68;
/** ETH_MAX_MTU; a tap's is less by its frame's header (tun_net_init). */
const maxMtu = { bridge: 65_535, tun: 65_521, veth: 65_535 } as const;
/** BR_MAX_PORTS less number 0, which is never given out. */
const maxPorts = 1023;
const maxAlias = 255;

/** The links of one network namespace, with the rules of Linux 6.18 that podnet relies on. */
export class FakeLinks {
  readonly all = new Map<number, FakeLink>();
  /** net.ipv6.conf.all.forwarding, which new links are born with. */
  ipv6Forwarding = "0";
  /** There has been an IPv4 address: the kernel makes its table of local ones then. */
  hasLocalTable = false;
  readonly #descriptors = new Map<number, number>();
  readonly #randomMac: () => Mac;
  /** Notified of links and addresses that have come, changed or gone. */
  readonly watchers = new Set<(event: RtnetlinkEvent) => void>();
  #nextIndex = 1;
  #nextDescriptor = 100;

  constructor(randomMac: () => Mac) {
    this.#randomMac = randomMac;
    const lo = this.#add("lo", undefined, noMac);
    Object.assign(lo, { up: true, mtu: 65_536 });
    lo.addresses = [{ prefix: "127.0.0.1/8" as IpPrefix, secondary: false }];
  }

  find(which: LinkRef): FakeLink | undefined {
    if (typeof which === "number") return this.all.get(which);
    return [...this.all.values()].find((link) => link.name === which);
  }

  get(which: LinkRef): FakeLink {
    const link = this.find(which);
    if (link === undefined) throw new Errno("ENODEV");
    return link;
  }

  ports(bridge: number): FakeLink[] {
    return [...this.all.values()].filter((link) => link.master === bridge);
  }

  addBridge(wanted: NewLink & { readonly bridge?: BridgeSettings }): FakeLink {
    refuseIf(this.find(wanted.name) !== undefined, "EEXIST");
    checkMtu("bridge", wanted.mtu);
    checkMac(wanted.mac);
    const link = this.#add(wanted.name, "bridge", wanted.mac ?? this.#randomMac());
    link.macSet = wanted.mac !== undefined;
    link.mtu = wanted.mtu ?? 1500;
    link.group = wanted.group ?? 0;
    link.up = wanted.up === true;
    link.fdbMaxLearned = wanted.bridge?.fdbMaxLearned ?? 0;
    link.noLinkLocalLearn = wanted.bridge?.noLinkLocalLearn ?? false;
    return link;
  }

  addVeth(name: string, mac: Mac, peer: string, peerMac: Mac): void {
    this.addPair({ name, mac }, { name: peer, mac: peerMac });
  }

  /** Makes a veth pair, whose far end may be born in another namespace. */
  addPair(near: NewLink, far: NewLink, home: FakeLinks = this): void {
    refuseIf(this.find(near.name) !== undefined, "EEXIST");
    checkMtu("veth", near.mtu);
    checkMac(near.mac);
    checkMtu("veth", far.mtu);
    checkMac(far.mac);
    refuseIf(home.find(far.name) !== undefined, "EEXIST");
    refuseIf(home === this && near.name === far.name, "EEXIST");
    // The peer is made first.
    const there = home.#born(far, "veth");
    const here = this.#born(near, "veth");
    Object.assign(here, { peer: there.index, peerHome: home });
    Object.assign(there, { peer: here.index, peerHome: this });
  }

  addIfb(wanted: NewLink): FakeLink {
    refuseIf(this.find(wanted.name) !== undefined, "EEXIST");
    checkMtu("ifb", wanted.mtu);
    checkMac(wanted.mac);
    return this.#born(wanted, "ifb");
  }

  #born(wanted: NewLink, kind: "veth" | "ifb"): FakeLink {
    const link = this.#add(wanted.name, kind, wanted.mac ?? this.#randomMac());
    link.mtu = wanted.mtu ?? 1500;
    link.group = wanted.group ?? 0;
    link.up = wanted.up === true;
    return link;
  }

  /** The namespace ends, and with it the links in it, those at other ends of pairs too. */
  end(): void {
    for (const { index, kind } of this.all.values())
      if (kind !== undefined && this.all.has(index)) this.delete(index);
  }

  /** The other end of a pair, while it is there. */
  peerOf({ peer, peerHome }: FakeLink): FakeLink | undefined {
    return peer === 0 ? undefined : peerHome?.all.get(peer);
  }

  /** TUNSETIFF with IFF_TUN_EXCL; answers a descriptor. */
  openTap(name: string): number {
    refuseIf(this.find(name) !== undefined, "EBUSY");
    const { index } = this.#add(name, "tun", this.#randomMac());
    return this.#describe(index);
  }

  #describe(index: number): number {
    const descriptor = this.#nextDescriptor++;
    this.#descriptors.set(descriptor, index);
    return descriptor;
  }

  /** Another descriptor of the same tap, as SCM_RIGHTS gives. */
  duplicate(descriptor: number): number {
    const index = this.#descriptors.get(descriptor);
    if (index === undefined) throw new Errno("EBADF");
    return this.#describe(index);
  }

  /** The last descriptor's end is the tap's. */
  closeDescriptor(descriptor: number): void {
    const index = this.#descriptors.get(descriptor);
    if (index === undefined) throw new Errno("EBADF");
    this.#descriptors.delete(descriptor);
    if (![...this.#descriptors.values()].includes(index) && this.all.has(index)) this.delete(index);
  }

  get openDescriptors(): number {
    return this.#descriptors.size;
  }

  /** do_setlink: one after the other, and what was done before a failure stays. */
  change(which: LinkRef, change: LinkChange): void {
    const { mac, mtu, group, name, alias, up, master, linkLocal } = change;
    // What a request may say is checked before what it is about.
    refuseIf(alias !== undefined && Buffer.byteLength(alias) > maxAlias, "ERANGE");
    const link = this.get(which);
    if (mac !== undefined) this.#setMac(link, mac);
    if (mtu !== undefined) this.#setMtu(link, mtu);
    if (group !== undefined) link.group = group;
    if (name !== undefined && name !== link.name) {
      refuseIf(this.find(name) !== undefined, "EEXIST");
      link.name = name;
    }
    if (alias !== undefined) link.alias = alias === "" ? undefined : alias;
    if (master !== undefined) this.#setMaster(link, master);
    if (up !== undefined) setUp(link, up);
    if (up === true && link.name === "lo") this.hasLocalTable = true;
    if (linkLocal === false) link.settings.set("addr_gen_mode", "1");
    this.#report(link, false);
  }

  #report(link: FakeLink, gone: boolean): void {
    this.report({ kind: "link", gone, link: this.show(link) });
  }

  report(event: RtnetlinkEvent): void {
    for (const watcher of this.watchers) watcher(event);
  }

  setPort(which: LinkRef, { isolated, learning }: BridgePortSettings): void {
    const link = this.get(which);
    refuseIf(link.master === 0, "EOPNOTSUPP");
    link.isolated = isolated ?? link.isolated;
    link.learning = learning ?? link.learning;
    this.#report(link, false);
  }

  setVlan(which: LinkRef, vlan: number): void {
    const link = this.get(which);
    refuseIf(link.master === 0, "EOPNOTSUPP");
    link.vlan = vlan;
  }

  changeBridge(which: LinkRef, wanted: BridgeSettings): void {
    const link = this.get(which);
    refuseIf(link.kind !== "bridge", "EOPNOTSUPP");
    link.vlanFiltering = wanted.vlanFiltering ?? link.vlanFiltering;
    link.fdbMaxLearned = wanted.fdbMaxLearned ?? link.fdbMaxLearned;
    link.noLinkLocalLearn = wanted.noLinkLocalLearn ?? link.noLinkLocalLearn;
    link.nfCallIptables = wanted.nfCallIptables ?? link.nfCallIptables;
    link.nfCallIp6tables = wanted.nfCallIp6tables ?? link.nfCallIp6tables;
    this.#report(link, false);
  }

  delete(which: LinkRef): void {
    const link = this.get(which);
    refuseIf(link.kind === undefined, "EOPNOTSUPP");
    for (const port of this.ports(link.index)) this.#leave(port);
    if (link.master !== 0) this.#leave(link);
    this.all.delete(link.index);
    this.#report(link, true);
    // mirred_device_event: a filter that led there leads nowhere from now on.
    for (const { filters } of this.all.values())
      filters?.forEach((to, i) => to === link.index && filters.splice(i, 1, 0));
    if (this.peerOf(link) !== undefined) link.peerHome?.delete(link.peer);
  }

  deleteGroup(group: number): void {
    const members = [...this.all.values()].filter((link) => link.group === group);
    refuseIf(members.length === 0, "ENODEV");
    refuseIf(
      members.some(({ kind }) => kind === undefined),
      "EOPNOTSUPP",
    );
    for (const { index } of members) if (this.all.has(index)) this.delete(index);
  }

  /** A link as rtnetlink reports it. */
  show(link: FakeLink): Link {
    const far = this.peerOf(link);
    const running = link.up && (link.kind !== "veth" || far?.up === true);
    return {
      index: link.index,
      name: link.name,
      up: link.up,
      running,
      carrier: running,
      loopback: link.name === "lo",
      operState: running ? "up" : link.up ? "lower-layer-down" : "down",
      mtu: link.mtu,
      mac: link.mac,
      group: link.group,
      altNames: [],
      ...(link.alias === undefined ? {} : { alias: link.alias }),
      ...(link.queue === undefined ? {} : { queue: "tbf" }),
      ...(far === undefined ? {} : { link: far.index }),
      ...(far === undefined || link.peerHome === this ? {} : { linkNetnsId: 0 }),
      ...(link.kind === undefined ? {} : { kind: link.kind }),
      ...(link.kind === "bridge"
        ? {
            bridge: {
              vlanFiltering: link.vlanFiltering,
              vlanProtocol: 0x8100,
              fdbMaxLearned: link.fdbMaxLearned,
              noLinkLocalLearn: link.noLinkLocalLearn,
              nfCallIptables: link.nfCallIptables,
              nfCallIp6tables: link.nfCallIp6tables,
            },
          }
        : {}),
      ...(link.master === 0
        ? {}
        : { master: link.master, port: { isolated: link.isolated, learning: link.learning } }),
    };
  }

  #add(name: string, kind: FakeLink["kind"], mac: Mac): FakeLink {
    const link: FakeLink = {
      index: this.#nextIndex++,
      kind,
      name,
      mac,
      macSet: false,
      mtu: 1500,
      mtuSet: false,
      up: false,
      group: 0,
      alias: undefined,
      master: 0,
      isolated: false,
      learning: true,
      vlan: 1,
      vlanFiltering: false,
      fdbMaxLearned: 0,
      noLinkLocalLearn: false,
      nfCallIptables: false,
      nfCallIp6tables: false,
      peer: 0,
      peerHome: undefined,
      queue: undefined,
      inner: undefined,
      filters: undefined,
      routes: [],
      addresses: [],
      neighbours: new Map(),
      settings: new Map([
        ["accept_ra", "1"],
        ["autoconf", "1"],
        ["addr_gen_mode", "0"],
        ["disable_ipv6", "0"],
        ["forwarding", this.ipv6Forwarding],
      ]),
    };
    this.all.set(link.index, link);
    this.#report(link, false);
    return link;
  }

  #setMac(link: FakeLink, mac: Mac): void {
    // (An ifb has no handler for it.)
    refuseIf(link.kind === "ifb", "EOPNOTSUPP");
    checkMac(mac);
    refuseIf(link.kind === undefined, "EOPNOTSUPP");
    // Setting what is set still makes it one that was set.
    link.macSet = true;
    // Also when it is the one it has (NETDEV_CHANGEADDR is sent all the same).
    link.neighbours.clear();
    link.mac = mac;
    this.#follow(link.master);
  }

  #setMtu(link: FakeLink, mtu: number): void {
    if (mtu === link.mtu) return;
    checkMtu(link.kind, mtu);
    link.mtu = mtu;
    link.mtuSet = true;
    this.#followMtu(link.master);
  }

  #setMaster(link: FakeLink, master: number): void {
    if (link.master === master) return;
    if (link.master !== 0) this.#leave(link);
    if (master === 0) return;
    const bridge = this.all.get(master);
    if (bridge === undefined) throw new Errno("EINVAL");
    refuseIf(bridge.kind !== "bridge", "EOPNOTSUPP");
    // br_add_if: first what has no address of Ethernet's, such as a bridge that its last port has
    // left; then bridges.
    refuseIf(link.name === "lo" || link.mac === noMac, "EINVAL");
    refuseIf(link.kind === "bridge", "ELOOP");
    refuseIf(this.ports(master).length >= maxPorts, "EXFULL");
    link.master = master;
    this.#follow(master);
    this.#followMtu(master);
  }

  #leave(link: FakeLink): void {
    const { master } = link;
    link.master = 0;
    Object.assign(link, { isolated: false, learning: true, vlan: 1 });
    this.#follow(master);
    this.#followMtu(master);
    this.#report(link, false);
  }

  /**
   * br_stp_recalculate_bridge_id: the lowest port's address, none without ports, unless its own was
   * set.
   */
  #follow(index: number): void {
    const bridge = this.all.get(index);
    if (bridge === undefined || bridge.macSet) return;
    const [lowest = noMac] = this.ports(index)
      .map(({ mac }) => mac)
      .toSorted();
    if (bridge.mac !== lowest) bridge.neighbours.clear();
    bridge.mac = lowest;
  }

  /** br_mtu_auto_adjust: the smallest of the ports', unless its own was changed. */
  #followMtu(index: number): void {
    const bridge = this.all.get(index);
    if (bridge === undefined || bridge.mtuSet) return;
    const mtus = this.ports(index).map(({ mtu }) => mtu);
    bridge.mtu = mtus.length === 0 ? 1500 : Math.min(...mtus);
  }
}

/** An address as rtnetlink reports it. */
export const showAddress = (index: number, prefix: IpPrefix): LinkAddress => ({
  index,
  prefix,
  scope: "global",
  permanent: true,
  tentative: false,
  dadFailed: false,
  deprecated: false,
  noPrefixRoute: false,
});

function setUp(link: FakeLink, up: boolean): void {
  if (link.up === up) return;
  link.up = up;
  if (up) return;
  // addrconf_ifdown, neigh_ifdown: down takes them away, IPv4 addresses stay.
  link.addresses = link.addresses.filter(({ prefix }) => !prefix.includes(":"));
  link.neighbours.clear();
  link.routes = [];
}

function checkMtu(kind: FakeLink["kind"], mtu: number | undefined): void {
  // (An ifb takes any.)
  if (mtu === undefined || kind === undefined || kind === "ifb") return;
  refuseIf(mtu < minMtu || mtu > maxMtu[kind], "EINVAL");
}

/** is_valid_ether_addr: neither none nor a group's. */
function checkMac(mac: Mac | undefined): void {
  if (mac === undefined) return;
  const group = (Number.parseInt(mac.slice(0, 2), 16) & 1) === 1;
  refuseIf(group || mac === noMac, "EADDRNOTAVAIL");
}
