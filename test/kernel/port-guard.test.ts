/**
 * What a guest sends in the name of another, byte by byte: each frame that is to be stopped,
 * alongside one of its kind that passes, heard by a neighbour, and counted.
 */
import test from "ava";
import type { IpPrefix, Mac } from "../../core/address.ts";
import type { PodFragment, PortDesired } from "../../network/model/desired.ts";
import { type DropKind, dropKinds } from "../../network/model/drop-kinds.ts";
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

const { signal } = new AbortController();
const [{ options }] = driversUnderTest as [(typeof driversUnderTest)[number]];

const everybody4 = "ff:ff:ff:ff:ff:ff";
const everybody6 = "33:33:00:00:00:01";
const [own, other] = [podMac(2), podMac(3)];
const own4 = podAddress(2, 4);
const other4 = podAddress(3, 4);
const [own6, other6] = [podAddress(2, 6), podAddress(3, 6)];
const [ownLink, otherLink] = [podLinkLocal(2), podLinkLocal(3)];
const gateway4 = "192.168.123.1";

/** The port of a pod's fragment, changed. */
const changed = (n: number, more: Partial<PortDesired>): PodFragment => {
  const [port] = dualPod(n).ports as [PortDesired];
  return { ...dualPod(n), ports: [{ ...port, ...more }] };
};

async function openStage(first: PodFragment = dualPod(2), network = dualNetwork()) {
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
const heard = (site: FirewallSite, frames: readonly RawFrame[]): Promise<string[]> =>
  heardWhile(
    { site, machine: "pod3", link: "eth0" },
    frames.map(({ text }) => text),
    () => sendFrames(site, "pod2", "eth0", frames),
  );

const texts = (frames: readonly RawFrame[]): string[] => frames.map(({ text }) => text);

/** How many frames of pod 2 were dropped, by kind. */
async function dropped(site: FirewallSite): Promise<Partial<Record<DropKind, number>>> {
  const drops = await site.host.observe.drops(signal);
  return Object.fromEntries(
    drops.filter(({ link }) => link === "tap2").map(({ kind, packets }) => [kind, packets]),
  );
}

const toOther = { dst: other, src: own } as const;
const to4 = { dst: everybody4, src: own } as const;
const to6 = { dst: everybody6, src: own } as const;
const answer: Resolution = { operation: 2, senderMac: own, sender: own4, target: other4 };
const ask: Resolution = { ...answer, operation: 1 };
const datagram = { saddr: own4, daddr: other4, protocol: 17 } as const;
const packet = { saddr: own6, daddr: other6, next: 17 } as const;
const icmp = { ...packet, next: 58 } as const;
const hidden = { saddr: own6, daddr: "ff02::1", next: 44 } as const;

/** By kind: what is stopped, and alongside it what passes. */
const cases: Readonly<
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

const last = four(toOther, datagram, udp(7, 7), "the last one");

test.serial(
  "a guest sends nothing in the name of another: each kind of frame is dropped, and counted at its port",
  async (t) => {
    await using site = await openStage();
    for (const [kind, { wrong, right }] of Object.entries(cases)) {
      const before = await dropped(site);
      t.deepEqual(
        await heard(site, [...wrong, ...right, last]),
        [...texts(right), last.text],
        kind,
      );
      const after = await dropped(site);
      const differing = Object.entries(after).flatMap(([each, count]) => {
        const more = count - (before[each as DropKind] ?? 0);
        return more === 0 ? [] : [[each, more]];
      });
      t.deepEqual(differing, [[kind, wrong.length]], kind);
    }
    const drops = await site.host.observe.drops(signal);
    t.deepEqual(
      drops.filter(({ link }) => link !== "tap2"),
      [],
      "nothing of its neighbour's is counted",
    );
  },
);

test.serial("a port without a guard sends anything; with one again, it does not", async (t) => {
  await using site = await openStage(changed(2, { guard: "off" }));
  const all = Object.entries(cases)
    .filter(([kind]) => kind !== "bridge-control")
    // (A bridge leads nothing to a MAC that it has learned at the port itself.)
    .flatMap(([kind, { wrong, right }]) =>
      kind === "mac" ? wrong.slice(1, 2) : [...wrong, ...right],
    );
  t.deepEqual(await heard(site, [...all, last]), [...texts(all), last.text]);
  t.deepEqual(await dropped(site), {});
  await site.ensure(dualPod(2));
  const { wrong, right } = cases.ipv4 as { wrong: RawFrame[]; right: RawFrame[] };
  t.deepEqual(await heard(site, [...wrong, ...right]), texts(right));
  await site.ensure(changed(2, { guard: "off" }));
  t.deepEqual(await heard(site, [...wrong, ...right]), texts([...wrong, ...right]));
});

test.serial(
  "the guard is there before a port joins its bridge, goes after it has left, and a tap of the same name inherits nothing",
  async (t) => {
    await using site = await openStage();
    const elements = async (): Promise<string> =>
      site.inside("host", "nft", "list", "table", "bridge", "podnet");
    t.regex(await elements(), /"tap2"/);
    const [first] = await site.host.apply(
      changed(2, { otherMacs: ["02:00:00:00:00:44" as Mac] }),
      signal,
    );
    t.is(first?.kind, "nftables");
    // What joins, and what is taken away.
    const removed = await site.host.remove(dualPod(2), signal);
    t.deepEqual(
      removed.map(({ kind }) => kind).filter((kind) => kind !== "forget-neighbour"),
      ["detach-port", "delete-links", "nftables"],
    );
    t.notRegex(await elements(), /tap2|52540000000?2/);
    const link = "link add name tap2 type veth peer name eth0 netns".split(" ");
    await site.inside("host", "ip", ...link, site.namespaceOf("pod2"));
    const changes = await site.host.apply(dualPod(2), signal);
    const kinds = changes.map(({ kind }) => kind);
    t.true(
      kinds.indexOf("nftables") >= 0 && kinds.indexOf("nftables") < kinds.indexOf("attach-port"),
    );
    // What a crash or another program let stand goes with the next holder of the name.
    await site.inside(
      "host",
      "nft",
      "add element bridge podnet macs { tap2 . 0x020000000055 }; add element bridge podnet addresses4 { tap2 . 192.168.123.99 }",
    );
    const mended = await site.host.inspectRules(
      () => [dualPod(2)],
      () => true,
      signal,
    );
    t.is(mended.size, 1);
    t.notRegex(await elements(), /0x20000000055|192\.168\.123\.99/);
    t.deepEqual(await site.host.diff(dualPod(2), signal), []);
  },
);

test.serial(
  "a port without elements sends nothing, and one that gets them sends its own",
  async (t) => {
    await using site = await openStage();
    const { right } = cases.mac as { right: RawFrame[] };
    await site.inside("host", "nft", "flush", "set", "bridge", "podnet", "macs");
    await sendFrames(site, "pod2", "eth0", right);
    // (The kernel may have said something of its own as well.)
    t.true(((await dropped(site)).mac ?? 0) >= 1);
    await site.ensure(dualPod(2));
    t.deepEqual(await heard(site, right), texts(right));
  },
);

test.serial(
  "addresses that are added are let through before and those that are taken back are not",
  async (t) => {
    await using site = await openStage();
    const [port] = dualPod(2).ports as [PortDesired];
    const more = four(toOther, { ...datagram, saddr: "192.168.123.222" }, udp(9, 9), "one more");
    const probe = arp(to4, { ...ask, sender: "192.168.123.222" }, "ARP of one more");
    t.deepEqual(await heard(site, [more, probe, last]), [last.text]);
    const guestAddresses = [...port.guestAddresses, "192.168.123.222/24" as IpPrefix];
    await site.ensure(changed(2, { guestAddresses }));
    t.deepEqual(await heard(site, [more, probe, last]), [more.text, probe.text, last.text]);
    await site.ensure(dualPod(2));
    t.deepEqual(await heard(site, [more, probe, last]), [last.text]);
  },
);

test.serial(
  "a guest that chooses its link-local addresses uses any but those of others",
  async (t) => {
    await using site = await openStage(changed(2, { guard: "own-link-local" }));
    const chosen = "fe80::7:8:9:a";
    const from = (saddr: string, text: string): RawFrame =>
      six(toOther, { ...packet, saddr }, udp(9, 9), text);
    const bridge = await site.inside("host", "ip", "-o", "-6", "address", "show", "dev", "hyper0");
    const gateway = /(fe80::[0-9a-f:]+)\//.exec(bridge)?.[1] ?? "";
    const right = [
      from(chosen, "chosen"),
      from(ownLink, "made of its MAC"),
      six(to6, { ...icmp, saddr: "::" }, discovery(135, chosen), "DAD for it"),
      six(to6, { ...icmp, saddr: chosen }, discovery(136, chosen, linkOption(2, own)), "NA of it"),
    ];
    const wrong = [
      from(otherLink, "another's"),
      from(gateway, "the gateway's"),
      six(to6, { ...icmp, saddr: chosen }, discovery(136, gateway), "NA of the gateway's"),
      six(to6, { ...icmp, saddr: "::" }, discovery(135, otherLink), "DAD for another's"),
      from("fd00:123::77", "not link-local"),
    ];
    t.deepEqual(await heard(site, [...wrong, ...right]), texts(right));
  },
);

test.serial(
  "while later plugins may change a container's MAC, any but others' passes; with its addresses only",
  async (t) => {
    await using site = await openStage(changed(2, { macMayChange: true }));
    const later = "02:11:22:33:44:55";
    const head = { dst: other, src: later } as const;
    const right = [
      four(head, datagram, udp(9, 9), "the new MAC"),
      arp(head, { ...ask, senderMac: later }, "ARP by it"),
      six({ ...to6, src: later }, icmp, discovery(135, other6, linkOption(1, later)), "NS by it"),
      last,
    ];
    const wrong = [
      four({ dst: other, src: other }, datagram, udp(9, 9), "another's MAC"),
      four(head, { ...datagram, saddr: other4 }, udp(9, 9), "another's address"),
      arp(head, { ...ask, senderMac: other }, "ARP with another's MAC"),
    ];
    t.deepEqual(await heard(site, [...wrong, ...right]), texts(right));
    await site.ensure(changed(2, { otherMacs: [later as Mac] }));
    t.deepEqual(await heard(site, [...wrong, ...right]), texts(right), "once it is known");
    const next = { dst: other, src: "02:11:22:33:44:56" };
    t.deepEqual(await heard(site, [four(next, datagram, udp(9, 9), "a third"), last]), [last.text]);
  },
);

test.serial(
  "on a foreign bridge the MAC decides about IPv6, and about IPv4 where podnet gave no address",
  async (t) => {
    await using site = await openStage();
    await site.ensure(changed(2, { foreign: true, guestAddresses: [] }));
    const any = [
      four(toOther, { ...datagram, saddr: "10.9.9.9" }, udp(9, 9), "IPv4 of a DHCP server"),
      arp(to4, { ...ask, sender: "10.9.9.9" }, "ARP of it"),
    ];
    const any6 = [
      six(toOther, { ...packet, saddr: "2001:db8::77" }, udp(9, 9), "IPv6 of a router"),
      six(to6, { ...icmp, saddr: "2001:db8::77" }, discovery(136, "2001:db8::77"), "NA of it"),
    ];
    const { wrong } = cases.mac as { wrong: RawFrame[] };
    t.deepEqual(await heard(site, [...wrong, ...any, ...any6]), texts([...any, ...any6]));
    await site.ensure(changed(2, { foreign: true, guestAddresses: [`${own4}/24` as IpPrefix] }));
    t.deepEqual(
      await heard(site, [...wrong, ...any, ...any6]),
      texts(any6),
      "with an IPv4 address",
    );
  },
);

test.serial(
  "further protocols pass where a network has them, and tags of VLANs are no way around on a bridge that filters them",
  async (t) => {
    await using site = await openStage(dualPod(2), dualNetwork({ ethertypes: [0x88e5] }));
    const { wrong } = cases.ethertype as { wrong: RawFrame[] };
    const [macsec, ...others] = wrong as [RawFrame, ...RawFrame[]];
    t.deepEqual(await heard(site, [...others, macsec]), [macsec.text]);
    t.deepEqual(await site.host.diff(dualNetwork({ ethertypes: [0x88e5] }), signal), []);
    const tagged = (vlan: number): RawFrame =>
      four(
        { ...toOther, vlans: [vlan] },
        { ...datagram, saddr: other4 },
        udp(9, 9),
        `VLAN ${vlan}`,
      );
    t.deepEqual(await heard(site, [tagged(1), last]), [tagged(1).text, last.text]);
    // (As on a bridge that filters VLANs, which this kernel may not have.)
    await site.inside("host", "nft", "flush", "set", "bridge", "podnet", "trunks");
    t.deepEqual(await heard(site, [tagged(1), last]), [last.text]);
  },
);

test.serial(
  "a table that another program deleted comes back with all ports, which are never without it for long",
  async (t) => {
    await using site = await openStage();
    const { wrong, right } = cases.mac as { wrong: RawFrame[]; right: RawFrame[] };
    await site.inside("host", "nft", "delete", "table", "bridge", "podnet");
    // The network is looked at first: its pods come back with it.
    await site.ensure(dualNetwork());
    t.deepEqual(await heard(site, [...wrong, ...right]), texts(right));
    t.deepEqual(await site.host.diff(dualPod(2), signal), []);
  },
);

test.serial(
  "pods that an earlier podnet ran are guarded from the start on, and keep sending meanwhile",
  async (t) => {
    await using site = await openStage();
    await site.inside("host", "nft", "delete", "table", "bridge", "podnet");
    // As podnet 0.19 had it.
    const before = [
      "add table bridge podnet",
      'add set bridge podnet guarded { type devgroup; comment "podnet:table:guarded"; }',
      "add chain bridge podnet host { type filter hook input priority -200; policy accept; }",
      "add chain bridge podnet sender",
      'add rule bridge podnet host meta iifgroup @guarded jump sender comment "podnet:table:00000000:host:0"',
      'add rule bridge podnet sender meta protocol { ip, ip6 } drop comment "podnet:table:00000000:sender:0"',
    ];
    for (const command of before) await site.inside("host", "nft", command);
    const again = FirewallSite.again(site, options);
    const [change, ...others] = await again.apply(
      { kind: "running-pods", pods: [dualPod(2), dualPod(3)] },
      signal,
    );
    t.deepEqual(others, []);
    t.like(change, { kind: "nftables", base: "remake" });
    const table = await site.inside("host", "nft", "list", "table", "bridge", "podnet");
    t.notRegex(table, /set guarded|chain sender/);
    const { wrong, right } = cases.mac as { wrong: RawFrame[]; right: RawFrame[] };
    t.deepEqual(await heard(site, [...wrong, ...right]), texts(right));
    await again[Symbol.asyncDispose]();
  },
);

test("each kind has a number of its own", (t) => {
  const numbers = Object.values(dropKinds).map(({ number }) => number);
  t.is(new Set<number>(numbers).size, numbers.length);
  // (On a network without IPv6, see firewall-guard.test.ts.)
  const covered = new Set([...Object.keys(cases), "no-ipv6"]);
  t.deepEqual(
    Object.keys(dropKinds).filter((kind) => !covered.has(kind)),
    [],
  );
});
