import { type DropKind, dropKinds } from "../../network/model/drop-kinds.ts";
import type { Drop } from "../../network/firewall/nftables/drops.ts";
import type { Refusal, RefusalKind } from "../../network/firewall/nftables/refusals.ts";

const unguarded = "turn the guard of the interface off if its guest may do this";
const addressed = `add the address to the interface if it is the guest's, or ${unguarded}`;

/** What an administrator can do where the guest is not hostile. */
const advice: Readonly<Record<DropKind | RefusalKind, string>> = {
  mac: unguarded,
  ipv4: addressed,
  "arp-mac": unguarded,
  "arp-ip": addressed,
  "arp-claim": addressed,
  ipv6: addressed,
  "link-local": unguarded,
  "nd-mac": unguarded,
  "nd-target": addressed,
  router: unguarded,
  "dhcp-server": unguarded,
  "bridge-control": unguarded,
  ethertype: "name the protocol in guard_ethertypes if guests may use it",
  fragment: unguarded,
  "extension-header": unguarded,
  "vlan-stack": unguarded,
  "no-ipv6": "give the network IPv6 if its guests need it",
  host: "open the port to the network (host_access) if its guests may reach it",
  connections: "look for what opens them in the guest, or give the network more (connections)",
};

const refused: Readonly<Record<RefusalKind, string>> = {
  host: "packets to the host refused",
  connections: "packets beyond the pod's share of connections refused",
};

const isRefusal = (kind: DropKind | RefusalKind): kind is RefusalKind =>
  Object.hasOwn(refused, kind);

const what = (kind: DropKind | RefusalKind): string =>
  isRefusal(kind) ? refused[kind] : `frames dropped, ${dropKinds[kind].what}`;

/**
 * What was dropped, and what to do, in one line: `eth0: 3 frames dropped, … (mac). To do: …`. Pure.
 */
export function dropText(
  place: string,
  drops: readonly Pick<Drop | Refusal, "kind" | "packets">[],
): string {
  const counts = drops.map(({ kind, packets }) => `${packets} ${what(kind)} (${kind})`);
  const todo = [...new Set(drops.map(({ kind }) => advice[kind]))];
  return `${place}: ${counts.join("; ")}. To do: ${todo.join("; ")}`;
}
