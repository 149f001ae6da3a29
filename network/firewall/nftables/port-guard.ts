import { allPortGroups } from "../../model/desired.ts";
import { type DropKind, dropKinds } from "../../model/drop-kinds.ts";
import { bridgeGuardSets, type SetName } from "../../model/nftables-sets.ts";
import type { TableModel } from "./base.ts";
import { forgetPort, notePort } from "./port-identity.ts";

/** Counts a frame by its interface and kind, and drops it. */
const drop = (kind: DropKind): string => `meta mark set ${dropKinds[kind].number} goto dropped`;

/**
 * The fields that sets of raw data are looked up by (`@ll,48,48` is the source MAC of a frame).
 * libnftables 1.0.6 has no names for the fields of neighbor discovery, and a set has one type; so
 * the others are written in this way too, and one element serves all of them.
 */
const source = { mac: "@ll,48,48", ip6: "@nh,64,128" } as const;
/** Offset of a fragment and "more follow", where IPv4 is known: `ip` would be looked for again. */
const fragment4 = "@nh,48,16 & 0x3fff";
const arpSenderMac = "@nh,64,48";
const ndTarget = "@th,64,128";
/**
 * What `arp`, `icmpv6`, `exthdr` and `frag` apply to. nft would otherwise look for the protocol in
 * front of a VLAN tag, and a rule that does not apply drops nothing.
 */
const arp = "meta protocol arp";
const six = "meta protocol ip6";
/** The first option of a neighbor solicitation or advertisement, and of a router solicitation. */
const neighborOption = { head: "@th,192,16", mac: "@th,208,48" } as const;
const routerOption = { head: "@th,64,16", mac: "@th,80,48" } as const;
/** Type and length (in eight bytes) of an option: RFC 4861 section 4.6, RFC 3971 section 5.3.2. */
const sourceLinkLayer = "0x0101";
const targetLinkLayer = "0x0201";
const nonce = "0x0e01";

/** Looks where an ARP request goes that would leave by a port. */
const request = `${arp} meta oifgroup ${allPortGroups} arp operation request goto asked`;

const isLinkLocal = (field: string): string => `${field} & 0xffc0 == 0xfe80`;

/** In another VLAN than the bridge's own, addresses are not the network's. */
const inOtherVlan = "vlan id 1-4095 meta iifgroup @trunks";

/** Accepts an option that is the only one and has a MAC of the interface. */
const acceptOption = (
  length: number,
  { head, mac }: typeof neighborOption | typeof routerOption,
  type: string,
): string[] => [
  `ip6 length ${length} ${head} ${type} iifname . ${mac} @macs accept`,
  `ip6 length ${length} ${head} ${type} iifname @changing meta iifgroup . ${mac} != @known accept`,
];

/**
 * Decides at the ports of bridges what guests send, with either driver: a guest sends with its own
 * MAC and addresses only. Only podnet's own ports are filtered, before their frames pass anything
 * else and before the bridge learns from them; a foreign port on such a bridge has another link
 * group. (podnetd's answers leave through the tap, a path that this table does not see.)
 *
 * A port that has no elements sends nothing: elements are there before it joins its bridge. A frame
 * is looked up by its MAC, and IPv4 and IPv6 by their sender; most IPv4 by both at once. Neither
 * these nor the number of rules depend on the number of ports.
 */
export const bridgeGuard: TableModel = {
  name: "bridge podnet",
  sets: Object.keys(bridgeGuardSets) as SetName[],
  chains: {
    arriving: {
      hook: { type: "filter", hook: "prerouting", priority: -300 },
      rules: [`meta iifgroup ${allPortGroups} jump port`],
    },
    // A bridge keeps frames to most of these groups from other ports, and gives them to the host.
    host: {
      hook: { type: "filter", hook: "input", priority: -200 },
      rules: [
        `meta pkttype multicast meta iifgroup ${allPortGroups} ether daddr & ff:ff:ff:ff:ff:f0 == 01:80:c2:00:00:00 iifname != @unguarded ${drop("bridge-control")}`,
      ],
    },
    port: {
      // (Most frames are IPv4, with a MAC and an address of the port: one look-up says so.)
      rules: [
        notePort,
        `meta protocol ip iifname . ip saddr . ${source.mac} @senders4 goto checked4`,
        `iifname . ${source.mac} != @macs goto unknown`,
        "goto own",
      ],
    },
    unknown: {
      rules: [
        "iifname @unguarded goto open",
        // A later plugin of a container's list may have given its link another MAC.
        `iifname @changing meta iifgroup . ${source.mac} != @known goto own`,
        drop("mac"),
      ],
    },
    // A router or a host of hosts.
    open: {
      rules: [`meta protocol ip6 meta iifgroup @without6 ${drop("no-ipv6")}`],
    },
    own: {
      rules: [
        // `meta protocol` is the protocol behind a VLAN tag, unlike `ether type`. Receivers ignore
        // a tag of VLAN 0, and two of them, so frames with a second tag are dropped.
        "meta protocol vmap { ip : goto four, ip6 : goto six, arp : goto resolution, 8021q : goto stacked, 8021ad : goto stacked }",
        `ether daddr & ff:ff:ff:ff:ff:f0 == 01:80:c2:00:00:00 ${drop("bridge-control")}`,
        "meta iifgroup . meta protocol @ethertypes accept",
        // RARP, by which QEMU announces the MAC of a restored machine: no guest has sent it.
        "meta protocol 0x8035 drop",
        drop("ethertype"),
      ],
    },
    stacked: { rules: [drop("vlan-stack")] },
    four: {
      rules: [
        "iifname . ip saddr @addresses4 goto checked4",
        "iifname @any4 goto checked4",
        `${inOtherVlan} goto checked4`,
        // Whoever asks for an address has none, and may belong to groups by then.
        "ip saddr 0.0.0.0 udp sport 68 udp dport 67 accept",
        "ip saddr 0.0.0.0 ip protocol igmp accept",
        drop("ipv4"),
      ],
    },
    checked4: {
      rules: [
        `${fragment4} != 0 jump fragments4`,
        "meta l4proto tcp accept",
        "meta l4proto udp goto datagrams4",
        `meta protocol ip icmp type { 5, 9 } ${drop("router")}`,
      ],
    },
    datagrams4: { rules: [`@th,16,16 68 ${drop("dhcp-server")}`] },
    // RFC 3128: the second fragment of eight bytes would replace a part of the header. RFC 791:
    // every link carries 68 bytes, so a first fragment has no need to be shorter.
    fragments4: {
      rules: [
        `ip frag-off & 0x1fff == 1 ${drop("fragment")}`,
        `ip frag-off & 0x3fff == 0x2000 ip length < 68 ${drop("fragment")}`,
      ],
    },
    resolution: {
      rules: [
        `${arp} arp hlen != 6 ${drop("arp-mac")}`,
        `${arp} arp plen != 4 ${drop("arp-ip")}`,
        `iifname . ${arpSenderMac} @macs goto resolving`,
        `iifname @changing meta iifgroup . ${arpSenderMac} != @known goto resolving`,
        drop("arp-mac"),
      ],
    },
    resolving: {
      rules: [
        `${arp} iifname . arp saddr ip @addresses4 accept`,
        "iifname @any4 accept",
        `${inOtherVlan} accept`,
        // RFC 5227: a probe has no sender.
        `${arp} arp saddr ip 0.0.0.0 iifname . arp daddr ip @addresses4 accept`,
        `${arp} arp saddr ip 0.0.0.0 ${drop("arp-claim")}`,
        `ether daddr & 01:00:00:00:00:00 == 01:00:00:00:00:00 ${drop("arp-claim")}`,
        drop("arp-ip"),
      ],
    },
    six: {
      rules: [
        `meta iifgroup @without6 ${drop("no-ipv6")}`,
        `iifname . ${source.ip6} @addresses6 goto checked6`,
        "iifname @any6 goto checked6",
        `${inOtherVlan} goto checked6`,
        "ip6 saddr :: goto unspecified",
        `iifname @choosing ip6 saddr fe80::/10 meta iifgroup . ${source.ip6} != @links goto checked6`,
        `ip6 saddr fe80::/10 ${drop("link-local")}`,
        drop("ipv6"),
      ],
    },
    checked6: {
      rules: [
        "ip6 nexthdr tcp accept",
        "ip6 nexthdr icmpv6 goto icmp6",
        "ip6 nexthdr { 0, 43, 44, 51, 60 } goto extended",
        `udp dport 546 ${drop("dhcp-server")}`,
      ],
    },
    icmp6: {
      rules: [
        `${six} icmpv6 type vmap { 133 : goto soliciting_routers, 134 : goto advertising_routers, 135 : goto soliciting, 136 : goto advertising, 137 : goto advertising_routers }`,
      ],
    },
    advertising_routers: { rules: [drop("router")] },
    soliciting_routers: {
      rules: [
        "ip6 length 8 accept",
        ...acceptOption(16, routerOption, sourceLinkLayer),
        drop("nd-mac"),
      ],
    },
    soliciting: {
      rules: [
        "ip6 length 24 accept",
        ...acceptOption(32, neighborOption, sourceLinkLayer),
        `ip6 length 32 ${neighborOption.head} ${nonce} accept`,
        drop("nd-mac"),
      ],
    },
    advertising: {
      rules: [
        `iifname . ${ndTarget} @addresses6 goto advertised`,
        "iifname @any6 goto advertised",
        `${inOtherVlan} goto advertised`,
        `iifname @choosing ${isLinkLocal("@th,64,16")} meta iifgroup . ${ndTarget} != @links goto advertised`,
        drop("nd-target"),
      ],
    },
    advertised: {
      rules: [
        "ip6 length 24 accept",
        ...acceptOption(32, neighborOption, targetLinkLayer),
        drop("nd-mac"),
      ],
    },
    // Whoever has no address yet looks for routers, reports its groups, and asks whether another
    // one has the address that it is about to take (RFC 4862).
    unspecified: {
      rules: [
        `${six} ip6 nexthdr icmpv6 icmpv6 type 133 ip6 length 8 accept`,
        `${six} ip6 nexthdr icmpv6 icmpv6 type 135 goto probing`,
        `${six} exthdr frag missing icmpv6 type { 131, 132, 143 } accept`,
        drop("ipv6"),
      ],
    },
    probing: {
      rules: [
        `iifname . ${ndTarget} @addresses6 goto probed`,
        `iifname @choosing ${isLinkLocal("@th,64,16")} meta iifgroup . ${ndTarget} != @links goto probed`,
        drop("nd-target"),
      ],
    },
    probed: {
      rules: [
        "ip6 length 24 accept",
        // RFC 7527.
        `ip6 length 32 ${neighborOption.head} ${nonce} accept`,
        drop("nd-mac"),
      ],
    },
    // The kernel finds the header behind these; where it finds none, no pod's rules would.
    extended: {
      rules: [
        `${six} exthdr frag exists goto fragments`,
        `${six} icmpv6 type 133-137 ${drop("extension-header")}`,
        `udp dport 546 ${drop("dhcp-server")}`,
        "meta l4proto != 0 accept",
        drop("extension-header"),
      ],
    },
    // The first fragment has the packet's header whole, and no extension header but its own
    // (RFC 7112); neighbor discovery is never in fragments (RFC 6980).
    fragments: {
      rules: [
        `ip6 nexthdr != 44 ${drop("fragment")}`,
        `${six} frag nexthdr { 0, 43, 44, 51, 60 } ${drop("fragment")}`,
        `${six} frag frag-off 0 frag more-fragments 1 ip6 length < 64 ${drop("fragment")}`,
        `${six} frag frag-off 0 icmpv6 type 133-137 ${drop("fragment")}`,
        `${six} frag frag-off 0 udp dport 546 ${drop("dhcp-server")}`,
      ],
    },
    // An ARP request for an address of a port goes to that port, and not to all: each guest that
    // hears one wakes up, so that the cost of a burst of pods would grow with their square.
    // (Behind the host's rules for frames between ports, which may look at the port.)
    forwarding: {
      hook: { type: "filter", hook: "forward", priority: 300 },
      rules: [forgetPort, request],
    },
    requesting: {
      hook: { type: "filter", hook: "output", priority: -200 },
      rules: [request],
    },
    asked: {
      rules: [
        `${arp} oifname . arp daddr ip @addresses4 accept`,
        `${arp} meta oifgroup . arp daddr ip != @held4 accept`,
        "vlan id 1-4095 meta oifgroup @trunks accept",
        // Who asks for its own address says that it has it: neighbors may know another MAC for it.
        `${arp} iifname . arp daddr ip @addresses4 iifname != @fresh accept`,
        "drop",
      ],
    },
    // (An update fails where the set is full: a rule that fails drops nothing.)
    dropped: { rules: ["update @drops { iif . meta mark counter }", "drop"] },
  },
  optional: { does: "the guard at bridges' ports" },
  restored: true,
};
