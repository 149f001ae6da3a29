import { allPortGroups } from "../../model/desired.ts";
import { mainTable, type TableModel } from "./base.ts";
import { sendersTable } from "./senders-table.ts";
import { bridgeGuardSets, hostGuardSets, type SetName } from "../../model/nftables-sets.ts";

/** Link-local addresses of IPv4, by which every cloud gives its metadata and keys; and those of IPv6 that clouds use. */
const metadata4 = "169.254.0.0/16";
const metadata6 = "{ fd00:ec2::254, fd20:ce::254, fd00:42::42, fd00:c1::a9fe:a9fe }";

/**
 * What guests may send, whichever driver writes the other rules. Ports of podnet's own alone are judged, before their
 * frames pass anything else: a port of somebody else on the same bridge has another link group. Router advertisements and
 * redirects of either family, and what DHCP clients take for answers, come from no guest. (podnetd answers out of the tap, which
 * is not this way.) Without IPv6 on the network none passes between guests either. Towards the host guests call themselves
 * by addresses of their network alone, and by those that podnet gave them beyond it; 0.0.0.0 is who asks for one.
 */
const bridgeGuard: TableModel = {
  name: "bridge podnet",
  sets: Object.keys(bridgeGuardSets) as SetName[],
  chains: {
    arriving: {
      hook: { type: "filter", hook: "prerouting", priority: -300 },
      rules: [`meta iifgroup ${allPortGroups} jump port`],
    },
    port: {
      rules: [
        // (The protocol behind a VLAN tag, which `ether type` is not: a tag of VLAN 0 says nothing to who gets it. Two of them neither.)
        "meta protocol { 8021q, 8021ad } drop",
        "meta iifgroup @without6 meta protocol ip6 drop",
        "meta protocol ip6 icmpv6 type { 134, 137 } drop",
        "meta protocol ip icmp type { 5, 9 } drop",
        "meta protocol { ip, ip6 } udp dport { 68, 546 } drop",
      ],
    },
    host: {
      hook: { type: "filter", hook: "input", priority: -200 },
      rules: ["meta iifgroup @guarded jump sender"],
    },
    sender: {
      rules: [
        // In another VLAN than the bridge's own, addresses are not the network's.
        "vlan id 1-4095 return",
        "meta iifgroup . ip saddr @sources4 return",
        "meta iifgroup . ip6 saddr @sources6 return",
        "iifname . ip saddr @given4 return",
        "iifname . ip6 saddr @given6 return",
        "ip saddr 0.0.0.0 udp sport 68 udp dport 67 return",
        "meta protocol { ip, ip6 } drop",
      ],
    },
  },
  optional: { does: "the guard at bridges' ports" },
};

/**
 * What guests may reach outside of this host: not the cloud's metadata, unless their network is open to it. An address of
 * the host, and what the host translates, is not outside; nor is an answer to whoever asked from there.
 */
const hostGuard: TableModel = {
  name: "inet podnet_guard",
  sets: Object.keys(hostGuardSets) as SetName[],
  chains: {
    forward: {
      hook: { type: "filter", hook: "forward", priority: -10 },
      rules: ["iifname @no_metadata oifname != @within_host jump outside"],
    },
    outside: {
      rules: [
        "ct direction reply return",
        // Refused and not dropped: programs that ask by habit go on at once.
        `ip daddr ${metadata4} reject with icmpx admin-prohibited`,
        `ip6 daddr ${metadata6} reject with icmpx admin-prohibited`,
      ],
    },
  },
  optional: { does: "the guard of the cloud's metadata" },
};

export const guardTables = [bridgeGuard, hostGuard] as const;

const models: ReadonlyMap<string, TableModel> = new Map(
  [mainTable, ...guardTables, sendersTable].map((model) => [model.name, model]),
);

/** A table of ours by its name; the main one unless given. */
export function modelOf(name: string = mainTable.name): TableModel {
  const model = models.get(name);
  if (model === undefined) throw new RangeError(`There is no table "${name}"`);
  return model;
}
