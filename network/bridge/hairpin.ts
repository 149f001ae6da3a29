import { type Family, familyOf, type Ip, ipOf } from "../../core/address.ts";
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
 * The addresses to which services lead now; undefined before podnetd has written their rules. A
 * port that reflects frames already goes on until then.
 */
export type Served = ReadonlySet<Ip> | undefined;

/**
 * The changes that let a pod reach itself through the host: by its published ports, and by services
 * of which it is a backend. Where frames pass the rules, the kernel translates them on the bridge
 * and forwards them there (br_nf_pre_routing_finish, Linux 6.1), that is, out of the port by which
 * they arrived. Hairpin mode is set only then, because such a port also reflects its guest's
 * broadcasts. The bridge forwards nothing between isolated ports, so none back to its sender
 * either. Pure.
 */
export function diffHairpin(
  { ports, published = [] }: PluggedFragment,
  observed: ObservedPod,
  onBridge: (family: Family) => boolean | undefined,
  served: Served,
): Change[] {
  // (A bridge of its own is set so where a pod on it has a policy.)
  const passes = (bridge: IfName, family: Family): boolean => {
    const everywhere = onBridge(family);
    if (everywhere === undefined) return false;
    return everywhere || observed.get(bridge)?.nfCall === true;
  };
  return ports.flatMap((port): Change[] => {
    const { tap, bridge } = port;
    const found = observed.get(tap)?.hairpin === true;
    const reached = reachedFamilies(port, published, served);
    const wanted = reached.some((family) => passes(bridge, family));
    if (found === wanted || (found && served === undefined)) return [];
    return [{ kind: "set-port", link: tap, set: { hairpin: wanted } }];
  });
}

/** The families in which a pod may reach itself through the host by a port of its own. */
function reachedFamilies(
  { isolated, guestAddresses }: PortDesired,
  published: readonly PublishedDesired[],
  served: Served,
): readonly Family[] {
  if (isolated) return [];
  const leadsTo = (ip: Ip): boolean =>
    served?.has(ip) === true || published.some(({ podIp }) => podIp === ip);
  const reached = guestAddresses.map(ipOf).filter(leadsTo).map(familyOf);
  return [...new Set(reached)].toSorted((a, b) => a - b);
}

/** Whether one of a pod's addresses is led to by services before, or after, but not both. Pure. */
export function servedOtherwise(
  { ports }: PluggedFragment,
  before: Served,
  after: Served,
): boolean {
  return ports.some(({ guestAddresses }) =>
    guestAddresses
      .map(ipOf)
      .some((ip) => before === undefined || before.has(ip) !== after?.has(ip)),
  );
}

/** Whether a pod's ports have to reflect the same frames, whatever the host's settings. Pure. */
export const sameReflecting = (
  before: PluggedFragment,
  after: PluggedFragment,
  served: Served,
): boolean => {
  const reached = (port: PortDesired, { published = [] }: PluggedFragment): string =>
    reachedFamilies(port, published, served).join();
  return after.ports.every((port) => reached(port, before) === reached(port, after));
};
