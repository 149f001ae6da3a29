import { connectionShares } from "../../../core/connection-share.ts";
import { type SetName, shareSets } from "../../model/nftables-sets.ts";
import type { TableModel } from "./base.ts";
import { fromPort } from "./port-identity.ts";

/**
 * Refused and not dropped, so that programs go on at once. Who asks everybody gets no answer, and
 * the kernel finds no way for a reset to a link-local address.
 */
export const refuse = [
  "meta pkttype { broadcast, multicast } drop",
  "ip6 saddr fe80::/10 reject with icmpx admin-prohibited",
  "meta l4proto tcp reject with tcp reset",
  "reject with icmpx admin-prohibited",
] as const;

/**
 * Limits the connections that the host remembers for each port of podnet: its table is one for all,
 * and a guest that fills it would take from its neighbours. A packet that would begin one
 * connection more is refused before it is remembered. Each limit has a set, in which the kernel
 * keeps the connections of a port while it remembers them; a packet of a known connection is not
 * looked up there.
 */
export const sharesTable: TableModel = {
  name: "inet podnet_shares",
  sets: Object.keys(shareSets) as SetName[],
  chains: {
    beginning: {
      // After conntrack has found the connection, and before addresses are translated.
      hook: { type: "filter", hook: "prerouting", priority: -190 },
      rules: [`${fromPort} ct state new ct status and confirmed == 0 jump share`],
    },
    share: {
      rules: connectionShares.map(
        (most) =>
          `iifname @share${most} add @held${most} { meta priority ct count over ${most} } goto exceeded`,
      ),
    },
    // (An update fails where the set is full, and with it its rule.)
    exceeded: { rules: ["update @exceeded { meta priority counter }", ...refuse] },
  },
  optional: { does: "the limit of connections for each guest" },
};
