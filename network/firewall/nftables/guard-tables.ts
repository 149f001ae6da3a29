import { allPortGroups } from "../../model/desired.ts";
import { mainTable, type TableModel } from "./base.ts";
import { policyTable } from "./policy-table.ts";
import { sendersTable } from "./senders-table.ts";
import { hostGuard } from "./host-guard.ts";
import { sharesTable } from "./shares-table.ts";
import { forgetPort, notePort } from "./port-identity.ts";
import { bridgeGuardSets, type SetName } from "../../model/nftables-sets.ts";

/**
 * Restricts what guests may send, with either driver. Only podnet's own ports are filtered, before
 * their frames pass anything else; a foreign port on such a bridge has another link group. Guests
 * may not send router advertisements and redirects of either family, nor messages that DHCP clients
 * take for answers. (podnetd's answers leave through the tap, a path that this table does not see.)
 * On a network without IPv6, no IPv6 passes between guests either. Towards the host, guests may
 * only use source addresses of their network, and addresses beyond it that podnet gave them;
 * 0.0.0.0 is a client that requests an address.
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
        notePort,
        // `meta protocol` is the protocol behind a VLAN tag, unlike `ether type`. Receivers ignore
        // a tag of VLAN 0, and two of them, so frames with a second tag are dropped.
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
    leaving: {
      hook: { type: "filter", hook: "postrouting", priority: 300 },
      rules: [forgetPort],
    },
  },
  optional: { does: "the guard at bridges' ports" },
};

export const guardTables = [bridgeGuard, hostGuard, sharesTable] as const;

const models: ReadonlyMap<string, TableModel> = new Map(
  [mainTable, ...guardTables, sendersTable, policyTable].map((model) => [model.name, model]),
);

/** One of our tables by its name; by default the main one. */
export function modelOf(name: string = mainTable.name): TableModel {
  const model = models.get(name);
  if (model === undefined) throw new RangeError(`There is no table "${name}"`);
  return model;
}
