import { type Cidr, familyOf, type Ip } from "../../../core/address.ts";
import type { OverlayRuled } from "../../model/overlay.ts";
import type { SenderChange } from "../../model/overlay-senders.ts";
import { allBut, senderMark } from "../traffic.ts";
import { overlayMark } from "../../model/ownership.ts";
import type { TableModel } from "./base.ts";
import { type Element, type SetName, senderSets } from "../../model/nftables-sets.ts";

const marked = `meta mark and ${senderMark} == ${senderMark}`;

/** (What bears no mark, as nearly all packets, costs a comparison.) */
const clearMark = [
  `${marked} ip daddr @lease4 meta mark set meta mark and ${allBut(senderMark)}`,
  `${marked} ip6 daddr @lease6 meta mark set meta mark and ${allBut(senderMark)}`,
];

/**
 * Hosts of overlays that may send to pods and containers here by their own addresses. With either
 * driver, this set identifies their packets: it marks them before the rules of the driver, which
 * accept the mark, and clears the mark after them. One look-up per packet, for any number of hosts.
 * The mark of packets that are not sent to this host's part of an overlay is left alone.
 */
export const sendersTable: TableModel = {
  name: "inet podnet_hosts",
  sets: ["lease4", "lease6", ...(Object.keys(senderSets) as SetName[])],
  chains: {
    arriving: {
      hook: { type: "filter", hook: "forward", priority: -5 },
      rules: [
        ...clearMark,
        `ip saddr . ip daddr @hosts4 meta mark set meta mark or ${senderMark}`,
        `ip6 saddr . ip6 daddr @hosts6 meta mark set meta mark or ${senderMark}`,
      ],
    },
    judged: {
      hook: { type: "filter", hook: "forward", priority: 5 },
      rules: clearMark,
    },
  },
  optional: { does: "the way in for other hosts of overlays by their own addresses" },
};

const hostElement = (subnet: Cidr, host: Ip, owner: string): Element => ({
  set: `hosts${familyOf(subnet)}`,
  key: `${host} . ${subnet}`,
  owner,
});

/** An overlay's elements of that table; empty if no host sends by its own address. Pure. */
export function senderElements({ name, sides }: OverlayRuled): Element[] {
  const owner = overlayMark(name);
  return sides.flatMap(({ subnet, senders }): Element[] =>
    senders === undefined
      ? []
      : [
          { set: `lease${familyOf(subnet)}`, key: subnet, owner },
          ...senders.map((host) => hostElement(subnet, host, owner)),
        ],
  );
}

/** The elements of some hosts. Pure. */
export const changedSenders = ({ name, subnet }: SenderChange, hosts: readonly Ip[]): Element[] =>
  hosts.map((host) => hostElement(subnet, host, overlayMark(name)));
