import { type Cidr, type Family, familyOf, lengthOf } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { hasFamily, type NetworkFragment } from "../../model/desired.ts";
import { chainMark, networkMark } from "../../model/ownership.ts";
import { openedMark, outermost } from "../traffic.ts";
import type { Rule } from "./rule.ts";

const comment = (mark: string): string[] => ["-m", "comment", "--comment", mark];

/**
 * A network's own rules, in the order of each chain. They are the ancestors' three in FORWARD and
 * their MASQUERADE, with two differences (docs/decisions/0008-firewall.md): outgoing comes last, so
 * that no network lets its pods into another one before that network's chain was asked, and the
 * chain ends in a DROP for new connections from elsewhere. Packets from the bridge itself are not
 * from elsewhere: with bridge-nf-call-iptables=1 the kernel shows frames between two pods to
 * FORWARD, and the pods of one network may talk unless it is isolated. What pods publish is marked
 * before (`nftables/published-table.ts`).
 */
export function networkRules(network: NetworkFragment, family: Family): Rule[] {
  if (!network.firewall || !hasFamily(network, family)) return [];
  const bridge = safeInterface(network.bridge);
  const { chain } = network;
  const ours = comment(networkMark(network.key));
  const established = ["-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED"];
  const translated = ["-m", "conntrack", "--ctstate", "DNAT"];
  const opened = ["-m", "mark", "--mark", `${openedMark}/${openedMark}`];
  const elsewhere = network.isolated === true ? [] : ["!", "-i", bridge];
  const filter = (chain: string, ...args: string[]): Rule => ({ table: "filter", chain, args });
  return [
    filter("FORWARD", "-o", bridge, ...established, ...ours, "-j", "ACCEPT"),
    filter("FORWARD", "-o", bridge, ...ours, "-j", chain),
    filter("FORWARD", "-i", bridge, ...ours, "-j", "ACCEPT"),
    filter(chain, "-o", bridge, ...opened, ...ours, "-j", "ACCEPT"),
    ...(network.acceptTranslated === true
      ? [filter(chain, "-o", bridge, ...translated, ...ours, "-j", "ACCEPT")]
      : []),
    ...outermost(network.admit ?? [])
      .filter((cidr) => familyOf(cidr) === family)
      // Packets from the bridge may come from an isolated network, whatever their source.
      .map((cidr) =>
        filter(chain, ...from(cidr), "!", "-i", bridge, "-o", bridge, ...ours, "-j", "ACCEPT"),
      ),
    filter(chain, ...elsewhere, "-o", bridge, ...ours, "-j", "DROP"),
    ...network.masquerade
      .filter((subnet) => familyOf(subnet) === family)
      .map((subnet): Rule => {
        const args = ["-s", subnet, "!", "-o", bridge, ...ours, "-j", "MASQUERADE"];
        return { table: "nat", chain: "POSTROUTING", args };
      }),
  ];
}

/** iptables prints no source if it matches everything. */
const from = (cidr: Cidr): string[] => (lengthOf(cidr) === 0 ? [] : ["-s", cidr]);

/**
 * The rules that all networks share: the jump to the chain for packets to the host's own addresses,
 * where published ports are translated, and a last rule without effect, which identifies the chain
 * as ours while it has no other rule.
 */
export function sharedRules(chain: string, family: Family): Rule[] {
  const ours = comment(chainMark(chain));
  const local = ["-m", "addrtype", "--dst-type", "LOCAL"];
  const nat = (chain: string, ...args: string[]): Rule => ({ table: "nat", chain, args });
  return [
    nat("PREROUTING", ...local, ...ours, "-j", chain),
    nat("OUTPUT", "!", "-d", loopback[family], ...local, ...ours, "-j", chain),
    nat(chain, ...ours, "-j", "RETURN"),
  ];
}

/** Never translated: packets from there could not be answered from elsewhere. */
const loopback = { 4: "127.0.0.0/8", 6: "::1/128" } as const;

/** iptables reads a final `+` as "every interface that begins so". */
export function safeInterface(bridge: string): string {
  if (!bridge.endsWith("+")) return bridge;
  throw new PodnetError("CONFIG_INVALID", `Bridge name "${bridge}" ends with a wildcard`, {
    field: "bridge",
    hint: "iptables takes a final + for a wildcard; choose another name",
  });
}
