import { createHash } from "node:crypto";
import { type Cidr, type Family, familyOf, lengthOf } from "../../../core/address.ts";
import { type OverlayRuled, sideOf } from "../../model/overlay.ts";
import { overlayMark } from "../../model/ownership.ts";
import { multicast, outermost, passMark, senderMark } from "../traffic.ts";
import { overlayChainStart, type Rule } from "./rule.ts";

/**
 * An overlay's own chain, in filter and in nat. Its name is a digest, so that any overlay's name
 * fits. Its prefix differs from flannel's chains, and from any valid `iptables_chain`.
 */
export const overlayChain = (name: string): string =>
  `${overlayChainStart}${createHash("sha256").update(name).digest("hex").slice(0, 8)}`;

/**
 * An overlay's rules in one family. They include flannel's, in flannel's order: no masquerading
 * within the overlay, for packets that another program has marked, and for groups; and packets
 * forwarded from or to the overlay are accepted. podnet's own rules come before: a network of this
 * host that drops outside traffic does not drop pods of other hosts, nor hosts that send by their
 * own addresses (`senderMark`). Traffic between pods of this host is left to its networks, which
 * may be isolated.
 */
export function overlayRules(overlay: OverlayRuled, family: Family): Rule[] {
  const side = sideOf(overlay, family);
  if (side === undefined) return [];
  const chain = overlayChain(overlay.name);
  const ours = ["-m", "comment", "--comment", overlayMark(overlay.name)];
  const { network: all, subnet: own, senders } = side;
  const marked = ["-m", "mark", "--mark", `${senderMark}/${senderMark}`];
  const filter = (chain: string, ...args: string[]): Rule => ({ table: "filter", chain, args });
  return [
    filter("FORWARD", ...ours, "-j", chain),
    filter(chain, ...from(own), ...to(own), ...ours, "-j", "RETURN"),
    filter(chain, ...from(all), ...to(all), ...ours, "-j", "ACCEPT"),
    ...(senders === undefined
      ? []
      : [filter(chain, ...to(own), ...marked, ...ours, "-j", "ACCEPT")]),
    ...(overlay.forward
      ? [
          filter("FORWARD", ...from(all), ...ours, "-j", "ACCEPT"),
          filter("FORWARD", ...to(all), ...ours, "-j", "ACCEPT"),
        ]
      : []),
    ...masqueradeRules(overlay, family, chain, ours),
  ];
}

function masqueradeRules(
  overlay: OverlayRuled,
  family: Family,
  chain: string,
  ours: readonly string[],
): Rule[] {
  const { masquerade } = overlay;
  const side = sideOf(overlay, family);
  if (side === undefined || masquerade === undefined) return [];
  const { network: all, subnet: own } = side;
  const nat = (...args: string[]): Rule => ({ table: "nat", chain, args: [...args] });
  const leave = [...ours, "-j", "RETURN"];
  const hide = [...ours, "-j", "MASQUERADE", ...(masquerade.randomFully ? ["--random-fully"] : [])];
  return [
    { table: "nat", chain: "POSTROUTING", args: [...ours, "-j", chain] },
    nat("-m", "mark", "--mark", `${passMark}/${passMark}`, ...leave),
    ...outermost(masquerade.except)
      .filter((cidr) => familyOf(cidr) === family)
      .flatMap((cidr) => [
        nat(...from(all), ...to(cidr), ...leave),
        nat(...from(cidr), ...to(all), ...leave),
      ]),
    nat(...from(own), ...to(all), ...leave),
    nat(...from(all), ...to(own), ...leave),
    nat("!", ...from(all), ...to(own), ...leave),
    nat(...from(all), "!", ...to(multicast[family]), ...hide),
    nat("!", ...from(all), ...to(all), ...hide),
  ];
}

/** iptables prints no source if it matches everything. */
const from = (cidr: Cidr): string[] => (lengthOf(cidr) === 0 ? [] : ["-s", cidr]);
const to = (cidr: Cidr): string[] => (lengthOf(cidr) === 0 ? [] : ["-d", cidr]);
