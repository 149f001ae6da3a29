import type { PodFragment, PortDesired } from "../../network/model/desired.ts";
import type { DropKind } from "../../network/model/drop-kinds.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  bridgeNf,
  dualNetwork,
  dualPod,
  FirewallSite,
  podAddress,
  podLinkLocal,
  podMac,
} from "../lab/firewall-site.ts";
import {
  arp,
  discovery,
  extension,
  four,
  fragmentOf,
  frame,
  groupReport,
  linkOption,
  type Resolution,
  six,
  udp,
} from "../lab/forged-frames.ts";
import { heardWhile, type RawFrame, sendFrames } from "../lab/frames.ts";

export const { signal } = new AbortController();

export const [{ options }] = driversUnderTest as [(typeof driversUnderTest)[number]];

const everybody4 = "ff:ff:ff:ff:ff:ff";

const everybody6 = "33:33:00:00:00:01";

export const [own, other] = [podMac(2), podMac(3)];

export const own4 = podAddress(2, 4);

export const other4 = podAddress(3, 4);

export const [own6, other6] = [podAddress(2, 6), podAddress(3, 6)];

export const [ownLink, otherLink] = [podLinkLocal(2), podLinkLocal(3)];

const gateway4 = "192.168.123.1";

/** The port of a pod's fragment, changed. */
export const changed = (n: number, more: Partial<PortDesired>): PodFragment => {
  const [port] = dualPod(n).ports as [PortDesired];
  return { ...dualPod(n), ports: [{ ...port, ...more }] };
};

export async function openStage(first: PodFragment = dualPod(2), network = dualNetwork()) {
  const site = await FirewallSite.open(options);
  // (Else the host takes off the padding, in which the texts are.)
  bridgeNf("0");
  await site.ensure(network);
  for (const n of [2, 3]) await site.pod(n);
  // What is said to groups comes to all, as on a bridge that does not look into it.
  const snooping = "link set hyper0 type bridge mcast_snooping 0".split(" ");
  await site.inside("host", "ip", ...snooping);
  // Not a word of their own while they are listened to.
  for (const machine of ["pod2", "pod3"])
    await site.inside(machine, "ip", "link", "set", "eth0", "arp", "off");
  await site.ensure(first, dualPod(3));
  return site;
}

/** What of pod 2's frames its neighbour hears. */
export const heard = (site: FirewallSite, frames: readonly RawFrame[]): Promise<string[]> =>
  heardWhile(
    { site, machine: "pod3", link: "eth0" },
    frames.map(({ text }) => text),
    () => sendFrames(site, "pod2", "eth0", frames),
  );

export const texts = (frames: readonly RawFrame[]): string[] => frames.map(({ text }) => text);

/** How many frames of pod 2 were dropped, by kind. */
export async function dropped(site: FirewallSite): Promise<Partial<Record<DropKind, number>>> {
  const drops = await site.host.observe.drops(signal);
  return Object.fromEntries(
    drops.filter(({ link }) => link === "tap2").map(({ kind, packets }) => [kind, packets]),
  );
}

export const toOther = { dst: other, src: own } as const;

export const to4 = { dst: everybody4, src: own } as const;

export const to6 = { dst: everybody6, src: own } as const;

const answer: Resolution = { operation: 2, senderMac: own, sender: own4, target: other4 };

export const ask: Resolution = { ...answer, operation: 1 };

export const datagram = { saddr: own4, daddr: other4, protocol: 17 } as const;

export const packet = { saddr: own6, daddr: other6, next: 17 } as const;

export const icmp = { ...packet, next: 58 } as const;

const hidden = { saddr: own6, daddr: "ff02::1", next: 44 } as const;

/** By kind: what is stopped, and alongside it what passes. */
export const cases: Readonly<
  Partial<Record<DropKind, { readonly wrong: RawFrame[]; readonly right: RawFrame[] }>>
> = {
  mac: {
    wrong: [
      four({ dst: other, src: other }, datagram, udp(9, 9), "another's MAC"),
      four({ dst: other, src: "02:00:00:00:00:09" }, datagram, udp(9, 9), "no pod's MAC"),
      frame({ dst: other, src: other }, 0x1234, Buffer.alloc(46), "any frame with another's MAC"),
      frame({ dst: other, src: other, vlans: [5] }, 0x800, Buffer.alloc(46), "tagged MAC"),
    ],
    right: [four(toOther, datagram, udp(9, 9), "its own MAC")],
  },
  ipv4: {
    wrong: [
      four(toOther, { ...datagram, saddr: other4 }, udp(9, 9), "another's IPv4"),
      four(toOther, { ...datagram, saddr: "192.168.123.77" }, udp(9, 9), "no pod's IPv4"),
      four(toOther, { ...datagram, saddr: gateway4 }, udp(9, 9), "the gateway's IPv4"),
      four(toOther, { ...datagram, saddr: "0.0.0.0" }, udp(9, 9), "no IPv4"),
      four({ ...toOther, vlans: [0] }, { ...datagram, saddr: other4 }, udp(9, 9), "VLAN 0 IPv4"),
    ],
    right: [
      four(toOther, datagram, udp(9, 9), "its own IPv4"),
      four(to4, { ...datagram, saddr: "0.0.0.0", daddr: "255.255.255.255" }, udp(68, 67), "DHCP"),
    ],
  },
  "arp-mac": {
    wrong: [
      arp(toOther, { ...answer, senderMac: other }, "ARP with another's MAC inside"),
      arp({ ...toOther, vlans: [0] }, { ...answer, senderMac: other }, "tagged ARP MAC"),
    ],
    right: [arp(toOther, answer, "ARP with its own MAC inside")],
  },
  "arp-ip": {
    wrong: [
      arp(toOther, { ...answer, sender: gateway4 }, "ARP that calls itself the gateway"),
      arp(toOther, { ...ask, sender: "192.168.123.77" }, "ARP with no pod's IPv4"),
      arp({ ...toOther, vlans: [0] }, { ...answer, sender: gateway4 }, "tagged ARP"),
    ],
    right: [arp(toOther, ask, "ARP with its own IPv4")],
  },
  "arp-claim": {
    wrong: [
      arp(to4, { ...ask, sender: gateway4, target: gateway4 }, "gratuitous ARP request"),
      arp(to4, { ...answer, sender: other4, target: other4 }, "gratuitous ARP answer"),
      arp(to4, { ...ask, sender: "0.0.0.0", target: other4 }, "a probe for another's address"),
    ],
    right: [
      arp(to4, { ...ask, target: own4 }, "gratuitous ARP for itself"),
      arp(to4, { ...ask, sender: "0.0.0.0", target: own4 }, "a probe for its own address"),
      arp(to4, { ...ask, target: gateway4 }, "a question for the gateway"),
    ],
  },
  ipv6: {
    wrong: [
      six(toOther, { ...packet, saddr: other6 }, udp(9, 9), "another's IPv6"),
      six(toOther, { ...packet, saddr: "fd00:123::1" }, udp(9, 9), "the gateway's IPv6"),
      six(toOther, { ...packet, saddr: "2001:db8::9" }, udp(9, 9), "no pod's IPv6"),
      six(toOther, { ...packet, saddr: "::" }, udp(9, 9), "no IPv6"),
    ],
    right: [six(toOther, packet, udp(9, 9), "its own IPv6")],
  },
  "link-local": {
    wrong: [
      six(toOther, { ...packet, saddr: otherLink }, udp(9, 9), "another's link-local"),
      six(toOther, { ...packet, saddr: "fe80::1" }, udp(9, 9), "no pod's link-local"),
    ],
    right: [six(toOther, { ...packet, saddr: ownLink }, udp(9, 9), "its own link-local")],
  },
  "nd-mac": {
    wrong: [
      six(to6, icmp, discovery(135, other6, linkOption(1, other)), "NS with another's MAC"),
      six(to6, icmp, discovery(136, own6, linkOption(2, other)), "NA with another's MAC"),
      six(
        to6,
        { ...icmp, saddr: ownLink, daddr: "ff02::2" },
        discovery(133, undefined, linkOption(1, other)),
        "RS with another's MAC",
      ),
      six(
        to6,
        icmp,
        discovery(135, other6, "0e01000000000000", linkOption(1, other)),
        "NS with another's MAC behind another option",
      ),
    ],
    right: [
      six(to6, icmp, discovery(135, other6, linkOption(1, own)), "NS with its own MAC"),
      six(to6, icmp, discovery(136, own6, linkOption(2, own)), "NA with its own MAC"),
      six(to6, icmp, discovery(135, other6), "NS without a MAC"),
      six(
        to6,
        { ...icmp, saddr: ownLink, daddr: "ff02::2" },
        discovery(133, undefined, linkOption(1, own)),
        "RS with its own MAC",
      ),
    ],
  },
  "nd-target": {
    wrong: [
      six(to6, icmp, discovery(136, other6, linkOption(2, own)), "NA of another's address"),
      six(to6, { ...icmp, saddr: ownLink }, discovery(136, otherLink), "NA of another's link"),
      six(to6, { ...icmp, saddr: "::" }, discovery(135, other6), "DAD for another's address"),
    ],
    right: [
      six(to6, { ...icmp, saddr: ownLink }, discovery(136, ownLink), "NA of its own link"),
      six(to6, { ...icmp, saddr: "::" }, discovery(135, own6), "DAD for its own address"),
      six(
        to6,
        { ...icmp, saddr: "::" },
        discovery(135, ownLink, "0e01aabbccddeeff"),
        "DAD with a nonce",
      ),
    ],
  },
  router: {
    wrong: [
      six(to6, { ...icmp, saddr: ownLink }, discovery(134, undefined), "a router advertisement"),
      six(to6, { ...icmp, saddr: ownLink }, discovery(137, own6, "00".repeat(16)), "a redirect"),
      six({ ...to6, vlans: [0] }, { ...icmp, saddr: ownLink }, discovery(134, undefined), "tag RA"),
      four(to4, { ...datagram, protocol: 1 }, Buffer.from("0501000000000000", "hex"), "redirect4"),
    ],
    right: [six(to6, { ...icmp, saddr: "::" }, discovery(133, undefined), "who looks for routers")],
  },
  "dhcp-server": {
    wrong: [
      four(to4, { ...datagram, daddr: "255.255.255.255" }, udp(67, 68), "a DHCP server"),
      six(to6, { ...packet, saddr: ownLink }, udp(547, 546), "a DHCPv6 server"),
    ],
    right: [
      four(to4, { ...datagram, daddr: "255.255.255.255" }, udp(68, 67), "a DHCP client"),
      six(to6, { ...packet, saddr: ownLink }, udp(546, 547), "a DHCPv6 client"),
    ],
  },
  "bridge-control": {
    wrong: [
      frame({ dst: "01:80:c2:00:00:00", src: own }, 38, Buffer.alloc(46, 0x42), "STP"),
      frame({ dst: "01:80:c2:00:00:02", src: own }, 0x8809, Buffer.alloc(46), "LACP"),
    ],
    right: [],
  },
  ethertype: {
    wrong: [
      frame(toOther, 0x88e5, Buffer.alloc(46), "MACsec"),
      frame(toOther, 38, Buffer.alloc(46, 0x42), "a frame of 802.3"),
      frame({ ...toOther, vlans: [0] }, 0x8863, Buffer.alloc(46), "tagged PPPoE"),
    ],
    right: [],
  },
  fragment: {
    wrong: [
      four(toOther, { ...datagram, fragment: 0x2000 }, Buffer.alloc(8), "a tiny first fragment"),
      four(toOther, { ...datagram, fragment: 1 }, Buffer.alloc(64), "one that rewrites the header"),
      six(toOther, hidden, Buffer.concat([fragmentOf(58, 0, true), Buffer.alloc(8)]), "tiny IPv6"),
      six(
        toOther,
        hidden,
        Buffer.concat([fragmentOf(60, 0, true), extension(58), Buffer.alloc(64)]),
        "an extension header in a fragment",
      ),
      six(
        to6,
        { ...hidden, saddr: ownLink },
        Buffer.concat([fragmentOf(58, 0, false), discovery(134, undefined), Buffer.alloc(64)]),
        "a router advertisement in a fragment",
      ),
      six(
        toOther,
        { ...hidden, next: 60 },
        Buffer.concat([extension(44), fragmentOf(17, 0, true), udp(9, 9), Buffer.alloc(64)]),
        "a fragment behind an extension header",
      ),
    ],
    right: [
      four(toOther, { ...datagram, fragment: 0x2000 }, Buffer.alloc(64), "a first fragment"),
      four(toOther, { ...datagram, fragment: 8 }, Buffer.alloc(8), "a later fragment"),
      six(
        toOther,
        hidden,
        Buffer.concat([fragmentOf(17, 0, true), udp(9, 9, 200), Buffer.alloc(64)]),
        "a first fragment of IPv6",
      ),
      six(
        toOther,
        hidden,
        Buffer.concat([fragmentOf(17, 9, false), Buffer.alloc(8)]),
        "a later fragment of IPv6",
      ),
    ],
  },
  "extension-header": {
    wrong: [
      six(
        to6,
        { ...icmp, next: 60 },
        Buffer.concat([extension(58), discovery(134, undefined)]),
        "a router advertisement behind an extension header",
      ),
      six(toOther, { ...packet, next: 60 }, Buffer.of(60, 200, 0, 0), "a header without an end"),
    ],
    right: [
      six(
        to6,
        { ...icmp, saddr: ownLink, next: 0 },
        groupReport(ownLink, "ff02::1"),
        "a report of groups",
      ),
      six(
        to6,
        { ...icmp, saddr: "::", next: 0 },
        groupReport("::", "ff02::1"),
        "a report of groups by who has no address",
      ),
    ],
  },
  "vlan-stack": {
    wrong: [four({ ...toOther, vlans: [0, 0] }, datagram, udp(9, 9), "two tags")],
    right: [
      four({ ...toOther, vlans: [5] }, { ...datagram, saddr: "10.5.0.2" }, udp(9, 9), "a VLAN"),
      arp({ ...to4, vlans: [5] }, { ...ask, sender: "10.5.0.2" }, "ARP in a VLAN"),
      six({ ...toOther, vlans: [5] }, { ...packet, saddr: "fd05::2" }, udp(9, 9), "VLAN's IPv6"),
      six({ ...to6, vlans: [5] }, { ...icmp, saddr: "fe80::5" }, discovery(136, "fd05::2"), "NA5"),
    ],
  },
};

export const last = four(toOther, datagram, udp(7, 7), "the last one");
