import { type Family, familyOf, ipOf } from "../../core/address.ts";
import type { Change } from "../model/change.ts";
import type { PluggedFragment } from "../model/desired.ts";
import type { HostSysctl } from "../kernel/kernel.ts";
import { readOptional } from "./observe.ts";
import type { ObservedPod } from "../model/observed.ts";

const bridgeNfKeys = {
  4: "net.bridge.bridge-nf-call-iptables",
  6: "net.bridge.bridge-nf-call-ip6tables",
} as const;

/**
 * Whether frames on a bridge pass the rules of this family; undefined without br_netfilter. Never
 * written by podnet.
 */
export function bridgeNf(sysctl: HostSysctl, family: Family): boolean | undefined {
  const value = readOptional(sysctl, bridgeNfKeys[family]);
  return value === undefined ? undefined : value === "1";
}

/**
 * The fragment with those of its ports that are on a bridge. A link that is on none has nothing to
 * reflect, and may be on its way out (`Attachments.release`).
 */
export function portsOnBridges(fragment: PluggedFragment, observed: ObservedPod): PluggedFragment {
  const ports = fragment.ports.filter(({ tap }) => (observed.get(tap)?.master ?? 0) !== 0);
  return { ...fragment, ports };
}

/**
 * The changes that let a pod reach by the host what it has published itself. Where frames pass the
 * rules, the kernel translates them on the bridge and sends them on there
 * (br_nf_pre_routing_finish, Linux 6.1), which means out of the port they came in by. Only then,
 * for such a port also reflects what its guest sends to everybody. Of isolated ports the bridge
 * lets nothing through to each other, and so not to themselves. Pure.
 */
export function diffHairpin(
  { ports, published = [] }: PluggedFragment,
  observed: ObservedPod,
  onBridge: (family: Family) => boolean | undefined,
): Change[] {
  return ports.flatMap(({ tap, isolated, guestAddresses }): Change[] => {
    const held = guestAddresses.map(ipOf);
    const wanted =
      !isolated &&
      published.some(({ podIp }) => held.includes(podIp) && onBridge(familyOf(podIp)) === true);
    const found = observed.get(tap)?.hairpin === true;
    return found === wanted ? [] : [{ kind: "set-port", link: tap, set: { hairpin: wanted } }];
  });
}
