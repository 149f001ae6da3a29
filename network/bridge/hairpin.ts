import { type Family, familyOf, ipOf } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { Change } from "../model/change.ts";
import type { PluggedFragment, PortDesired, PublishedDesired } from "../model/desired.ts";
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
 * The fragment with only those ports that are on a bridge. A link without a bridge reflects
 * nothing, and may be about to be deleted (`Attachments.release`).
 */
export function portsOnBridges(fragment: PluggedFragment, observed: ObservedPod): PluggedFragment {
  const ports = fragment.ports.filter(({ tap }) => (observed.get(tap)?.master ?? 0) !== 0);
  return { ...fragment, ports };
}

/**
 * The changes that let a pod reach its own published ports through the host. Where frames pass the
 * rules, the kernel translates them on the bridge and forwards them there
 * (br_nf_pre_routing_finish, Linux 6.1), that is, out of the port by which they arrived. Hairpin
 * mode is set only then, because such a port also reflects its guest's broadcasts. The bridge
 * forwards nothing between isolated ports, so none back to its sender either. Pure.
 */
export function diffHairpin(
  { ports, published = [] }: PluggedFragment,
  observed: ObservedPod,
  onBridge: (family: Family) => boolean | undefined,
): Change[] {
  // (A bridge of its own is set so where a pod on it has a policy.)
  const passes = (bridge: IfName, family: Family): boolean => {
    const everywhere = onBridge(family);
    if (everywhere === undefined) return false;
    return everywhere || observed.get(bridge)?.nfCall === true;
  };
  return ports.flatMap((port): Change[] => {
    const { tap, bridge } = port;
    const wanted = reachedFamilies(port, published).some((family) => passes(bridge, family));
    const found = observed.get(tap)?.hairpin === true;
    return found === wanted ? [] : [{ kind: "set-port", link: tap, set: { hairpin: wanted } }];
  });
}

/** The families in which a pod may reach what it publishes by a port of its own. */
function reachedFamilies(
  { isolated, guestAddresses }: PortDesired,
  published: readonly PublishedDesired[],
): readonly Family[] {
  if (isolated) return [];
  const held = guestAddresses.map(ipOf);
  const reached = published.flatMap(({ podIp }) => (held.includes(podIp) ? [familyOf(podIp)] : []));
  return [...new Set(reached)].toSorted((a, b) => a - b);
}

/** Whether a pod's ports have to reflect the same frames, whatever the host's settings. Pure. */
export const sameReflecting = (before: PluggedFragment, after: PluggedFragment): boolean => {
  const reached = (port: PortDesired, { published = [] }: PluggedFragment): string =>
    reachedFamilies(port, published).join();
  return after.ports.every((port) => reached(port, before) === reached(port, after));
};
