import { ipOf } from "../../../core/address.ts";
import { metadata4, metadata6 } from "../../../core/special-addresses.ts";
import { hostGuardSets, type SetName } from "../../model/nftables-sets.ts";
import type { TableModel } from "./base.ts";
import { forgetPort, fromPort } from "./port-identity.ts";
import { refuse } from "./shares-table.ts";

const cloudAddresses6 = `{ ${metadata6.map(ipOf).join(", ")} }`;

/**
 * Echo requests, and what neighbour discovery (RFC 4861) and multicast listeners (RFC 2710, RFC
 * 3810) send to a router.
 */
const icmp6 = "{ 128, 130, 131, 132, 133, 135, 136, 143 }";

/**
 * Restricts what guests may reach on this host, and outside of it the cloud's metadata.
 *
 * Of the host, at whichever of its addresses: podnetd's names, ping, and the ports that their
 * network opens. Answers to connections that the host began pass, and so does what root has
 * translated to this host, such as a service of Kubernetes. (podnetd answers DHCP at the port, a
 * path that this table does not see.) Connections are judged by their direction, so that a port
 * that a network closes is closed for those that exist, too. Refused and not dropped: who asks by
 * habit goes on at once. Who asks everybody gets no answer.
 *
 * Outside: not the metadata, unless their network allows it. The host's own addresses and
 * destinations that the host translates are not outside; neither are answers to connections from
 * outside.
 */
export const hostGuard: TableModel = {
  name: "inet podnet_guard",
  sets: Object.keys(hostGuardSets) as SetName[],
  chains: {
    input: {
      hook: { type: "filter", hook: "input", priority: -10 },
      rules: [`${fromPort} goto guest`],
    },
    guest: { rules: ["ct direction reply return", "iifname @host_closed goto host"] },
    host: {
      rules: [
        "ct state related return",
        "ct status dnat return",
        "iifname . meta l4proto . th dport @host_ports return",
        "meta l4proto { tcp, udp } th dport 53 iifname . ip daddr @dns4 return",
        "meta l4proto { tcp, udp } th dport 53 iifname . ip6 daddr @dns6 return",
        "icmp type echo-request return",
        `icmpv6 type ${icmp6} return`,
        "udp dport { 67, 547 } drop",
        "meta pkttype { broadcast, multicast } drop",
        "update @refused { meta priority counter }",
        ...refuse,
      ],
    },
    forward: {
      hook: { type: "filter", hook: "forward", priority: -10 },
      rules: [`ip daddr ${metadata4} goto metadata`, "meta nfproto ipv6 goto six"],
    },
    // (For IPv4 the kernel has set the priority anew.)
    six: { rules: [forgetPort, `ip6 daddr ${cloudAddresses6} goto metadata`] },
    metadata: {
      rules: [
        "iifname != @no_metadata return",
        "oifname @within_host return",
        "ct direction reply return",
        "reject with icmpx admin-prohibited",
      ],
    },
  },
  optional: { does: "the guard of the host and of the cloud's metadata" },
};
