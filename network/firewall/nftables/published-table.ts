import type { NetworkFragment } from "../../model/desired.ts";
import type { Element, SetName } from "../../model/nftables-sets.ts";
import { allBut, openedMark } from "../traffic.ts";
import { hairpinRules, type TableModel, translatedMatches, translatingChains } from "./base.ts";
import { networkElements } from "./element.ts";

/** Packets that iptables has to decide about: others are not looked at. */
const undecided = ["ct state established,related return", "oifname != @bridges return"];
const clearMark = `meta mark set meta mark and ${allBut(openedMark)}`;

/** What others translate keeps its sender, as it does without podnet. */
const answered = (["ip", "ip6"] as const).map((ip) => {
  const [own, opened] = ip === "ip" ? ["own4", "opened4"] : ["own6", "opened6"];
  const to = `meta l4proto . ${ip} daddr . th dport @${opened}`;
  return `ct status dnat ${ip} saddr . oifname @${own} ${to} masquerade`;
});

const families = [4, 6] as const;
const ofNetworks = ["bridges", ...families.map((family) => `own${family}` as const)] as const;
const ofPods = families.flatMap(
  (family) =>
    [
      `translated${family}`,
      `published${family}`,
      `everywhere${family}`,
      `loopback${family}`,
      `opened${family}`,
      `hairpin${family}`,
    ] as const,
);

/**
 * What pods publish, where the driver iptables writes the rules of networks: neither a change's nor
 * a packet's cost grows with the ports. The chains stand before those of iptables. They translate
 * as the main table does, and mark translated packets that a pod takes: only a rule of iptables can
 * accept a packet that iptables would drop (`iptables/network-rules.ts`). Behind it the mark is
 * cleared.
 */
export const publishedTable: TableModel = {
  name: "inet podnet_published",
  sets: [...ofNetworks, ...ofPods],
  chains: {
    arriving: {
      hook: { type: "filter", hook: "forward", priority: -5 },
      rules: [
        ...undecided,
        clearMark,
        ...translatedMatches.map((match) => `${match} meta mark set meta mark or ${openedMark}`),
      ],
    },
    judged: {
      hook: { type: "filter", hook: "forward", priority: 5 },
      rules: [...undecided, clearMark],
    },
    // Behind the relay of policies, before iptables.
    ...translatingChains(-105),
    postrouting: {
      hook: { type: "nat", hook: "postrouting", priority: 95 },
      rules: [...answered, ...hairpinRules],
    },
  },
  optional: { does: "published ports as a map", replaced: true },
};

/** A network's elements of that table. Pure. */
export const publishingElements = (network: NetworkFragment): Element[] =>
  networkElements(network).filter(({ set }) => ofNetworks.some((own: SetName) => own === set));
