import { createHash } from "node:crypto";
import { familyOf, ipOf } from "../../../core/address.ts";
import { connectionShares } from "../../../core/connection-share.ts";
import type { PluggedFragment } from "../../model/desired.ts";
import { type Element, type SetName, shareSets } from "../../model/nftables-sets.ts";
import { publishedMark } from "../../model/ownership.ts";
import type { PolicyChain } from "../../model/rules.ts";
import type { TableModel } from "./base.ts";
import { portLinks } from "./port-elements.ts";
import { fromPort } from "./port-identity.ts";

/** Chains of pods with several ports are named so. */
const chainPrefix = "share_";

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
 * Limits the connections that the host remembers for each pod: its table is one for all, and a
 * guest that fills it would take from its neighbours. A packet that would begin one connection more
 * is refused before it is remembered. Each limit has a set, in which the kernel keeps the
 * connections of a port while it remembers them; a packet of a known connection is not looked up
 * there. The ports of a pod that has several are counted together, in a chain of the pod's own.
 */
export const sharesTable: TableModel = {
  name: "inet podnet_shares",
  sets: Object.keys(shareSets) as SetName[],
  chains: {
    beginning: {
      // After conntrack has found the connection, and before addresses are translated. Chains of
      // this type see the first packet of a connection only: the others cost nothing here.
      hook: { type: "nat", hook: "prerouting", priority: -190 },
      rules: [`${fromPort} ct state new ct status and confirmed == 0 jump share`],
    },
    share: {
      rules: [
        "iifname . ip saddr vmap @sharing4",
        "iifname . ip6 saddr vmap @sharing6",
        ...connectionShares.map(
          (most) =>
            `iifname @share${most} add @held${most} { meta priority ct count over ${most} } goto exceeded`,
        ),
      ],
    },
    // (An update fails where the set is full, and with it its rule.)
    exceeded: { rules: ["update @exceeded { meta priority counter }", ...refuse] },
  },
  optional: { does: "the limit of connections for each guest" },
  owns: chainPrefix,
};

/**
 * The chain in which the ports of a pod are counted together; none for a pod with one port. Ports
 * in networks with one limit have one share; each other limit is counted by itself. Pure.
 */
export function sharingChains(pod: PluggedFragment): readonly PolicyChain[] {
  if (!pod.ports.some(({ sharing }) => sharing === true)) return [];
  const rules = [
    ...connectionShares.map((most) => `iifname @share${most} ct count over ${most} goto exceeded`),
    "accept",
  ];
  const digest = createHash("sha256").update([publishedMark(pod), ...rules].join("\n"));
  return [{ name: `${chainPrefix}${digest.digest("hex").slice(0, 16)}`, rules }];
}

/**
 * The elements that lead from the addresses of a pod's ports to that chain. (Another pod may have
 * the addresses of its `lo`.) Pure.
 */
export const sharingElements = (pod: PluggedFragment): Element[] =>
  sharingChains(pod).flatMap(({ name }) =>
    pod.ports
      .filter(({ sharing }) => sharing === true)
      .flatMap((port) =>
        [...port.guestAddresses.map(ipOf), ...portLinks(port)].map((address) => ({
          set: `sharing${familyOf(address)}` as const,
          key: `"${port.bridge}" . ${address}`,
          value: `jump ${name}`,
          owner: port.alias,
        })),
      ),
  );
