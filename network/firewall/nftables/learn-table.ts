import { familyOf, type Ip, isIp, parseIp } from "../../../core/address.ts";
import type { PluggedFragment } from "../../model/desired.ts";
import { type Element, learnSets, type SetName } from "../../model/nftables-sets.ts";
import type { TableModel } from "./base.ts";
import { entriesOf, objectOf, textOf } from "./listing.ts";
import { addressesOf } from "./policy-table.ts";

/**
 * Notes what a pod opens and what its policies allow: each destination once, in sets that the
 * kernel fills up to their sizes. It is there while a pod is learned from.
 */
export const learnTable: TableModel = {
  name: "inet podnet_learn",
  sets: Object.keys(learnSets) as SetName[],
  chains: {
    opening: {
      // After policies have denied what they deny.
      hook: { type: "filter", hook: "forward", priority: -4 },
      rules: [
        "ct state != new return",
        ...(
          [
            ["4", "ip", "icmp"],
            ["6", "ip6", "icmpv6"],
          ] as const
        ).flatMap(([n, ip, icmp]) => [
          `iifname . ${ip} saddr @learning${n} meta l4proto { tcp, udp, sctp } add @learned${n} { ${ip} daddr . meta l4proto . th dport }`,
          `iifname . ${ip} saddr @learning${n} ${icmp} type echo-request add @pinged${n} { ${ip} daddr }`,
        ]),
      ],
    },
  },
  optional: { does: "learning what pods use" },
};

/** The elements by which a pod's connections are noted. Pure. */
export const learnElements = (pod: PluggedFragment): Element[] =>
  addressesOf(pod).map(({ bridge, address, owner }) => ({
    set: `learning${familyOf(address)}`,
    key: `"${bridge}" . ${address}`,
    owner,
  }));

/** Where a pod has opened a connection to. */
export interface Learned {
  readonly address: Ip;
  /** The number in the IP header; undefined for ICMP. */
  readonly protocol?: number;
  readonly port?: number;
}

/** The sets that have it. */
export const learnedSets = [
  "learned4",
  "learned6",
  "pinged4",
  "pinged6",
] as const satisfies readonly SetName[];

/** Parses the JSON that libnftables prints for one of these sets. Throws `FIREWALL_FAILED`. */
export const parseLearned = (text: string): Learned[] =>
  entriesOf(text).flatMap((entry) => {
    const { elem } = objectOf(entry["set"]) ?? {};
    return (Array.isArray(elem) ? elem : []).flatMap((each): Learned[] => {
      const value = objectOf(objectOf(each)?.["elem"])?.["val"] ?? each;
      const words = objectOf(value)?.["concat"];
      const [address = "", protocol, port] = Array.isArray(words)
        ? words.map(textOf)
        : [textOf(value)];
      if (!isIp(address)) return [];
      const flow = protocol === undefined ? {} : { protocol: Number(protocol), port: Number(port) };
      return [{ address: parseIp(address), ...flow }];
    });
  });
