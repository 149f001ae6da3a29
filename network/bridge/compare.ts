import type { Family } from "../../core/address.ts";
import type { Kernel } from "./apply.ts";
import type { Change } from "../model/change.ts";
import {
  hasFamily,
  type Fragment,
  type NetworkFragment,
  type PluggedFragment,
  type PortDesired,
  type PublishedDesired,
} from "../model/desired.ts";
import type { PolicyOf } from "../firewall/policed.ts";
import type { ServicedDriver } from "../firewall/serviced.ts";
import { comparePoliced } from "./compare-policed.ts";
import { diffBridgeFilter, withBridgeFilter } from "./bridge-filter.ts";
import { bridgeSettings, diffNetwork, ipForwardKey, ipv6ForwardKey } from "./diff-network.ts";
import { diffPod } from "./diff-pod.ts";
import type { FirewallFacts } from "../firewall/driver.ts";
import type { Firewall } from "../firewall/open.ts";
import { bridgeNf, diffHairpin, portsOnBridges, sameReflecting, type Served } from "./hairpin.ts";
import { observeLinks, observeNames, observeNetwork, observePod, readOptional } from "./observe.ts";
import type { ObservedPod } from "../model/observed.ts";

/** The interfaces to observe the host with, and the configuration. */
export interface View extends Kernel {
  readonly firewall: ServicedDriver;
  readonly policyOf: PolicyOf;
  readonly served: () => Served;
  /** Why parts of the guard are not in force, a line each. */
  readonly guardLacking: () => readonly string[];
  readonly refusals: Firewall["refusals"];
  /** Removes the rules that the other driver made when it was configured. */
  readonly formerRules: Comparison;
  /** Whether the other driver's rules are in force, as far as is remembered. */
  readonly switching: () => boolean;
  readonly hostSeed: string;
}

/** Looks at a part of the host and gives the changes that make it what it should be. */
export type Comparison = (signal: AbortSignal) => Promise<Change[]>;

/** The missing or changed objects of a fragment. */
export function compareFragment(view: View, fragment: Fragment): Comparison {
  return fragment.kind === "network"
    ? (signal) => compareNetwork(view, fragment, signal)
    : (signal) => comparePod(view, fragment, signal);
}

/** The missing or changed links of a fragment, without its rules. */
export function compareLinks(view: View, fragment: Fragment): Comparison {
  if (fragment.kind !== "network") return () => comparePorts(view, fragment);
  return async () => compareBridge(view, fragment);
}

/**
 * The rules of a pod or container, and the port settings that depend on them. Its links are left as
 * they are.
 */
export function compareRules(view: View, fragment: PluggedFragment): Comparison {
  return async (signal) => {
    const observed = await observePod(view.netlink, fragment);
    const passes = (family: Family): boolean | undefined => bridgeNf(view.sysctl, family);
    return [
      ...(await comparePoliced(view.firewall, [fragment], signal)),
      ...diffHairpin(portsOnBridges(fragment, observed), observed, passes, view.served()),
      ...(await compareOwnRules(view, fragment, signal)),
    ];
  };
}

/**
 * The rules of what a pod publishes, which was `had` before; its links are looked at only if one of
 * them may have to reflect frames from now on, or no more.
 */
export function comparePublished(
  view: View,
  fragment: PluggedFragment,
  had: readonly PublishedDesired[],
): Comparison {
  return async (signal) => {
    const isSame = sameReflecting({ ...fragment, published: had }, fragment, view.served());
    const hairpins = isSame
      ? new Map<PluggedFragment, Change[]>()
      : await compareHairpins(view, [fragment]);
    return [...(hairpins.get(fragment) ?? []), ...(await compareOwnRules(view, fragment, signal))];
  };
}

/** Why policies do not decide between pods on one bridge, once there are any. */
export const filterLacking = ({ firewall, sysctl }: View): readonly string[] =>
  firewall.polices() && bridgeNf(sysctl, 4) === undefined
    ? ["policies between pods on one network (the kernel module br_netfilter is not loaded)"]
    : [];

/** The bridges of these pods that are to have their frames pass the host's rules. */
export async function compareFilters(
  { netlink, policyOf }: View,
  fragments: readonly PluggedFragment[],
): Promise<Change[]> {
  const policed = fragments.filter((fragment) => policyOf(fragment) !== undefined);
  if (policed.length === 0) return [];
  return diffBridgeFilter(policed, policyOf, await observePods(netlink, policed));
}

/**
 * Pods with ports that reflect their own frames, or do not, otherwise than published ports and
 * services ask for, and the changes that put this right.
 */
export async function compareHairpins(
  { netlink, sysctl, served }: View,
  fragments: readonly PluggedFragment[],
): Promise<ReadonlyMap<PluggedFragment, Change[]>> {
  if (fragments.every(({ ports }) => ports.length === 0)) return new Map();
  const links = await observeBridged(netlink, fragments);
  // Each is read once, and only where a pod has a port of its family.
  const read = new Map<Family, boolean | undefined>();
  const passes = (family: Family): boolean | undefined => {
    if (!read.has(family)) read.set(family, bridgeNf(sysctl, family));
    return read.get(family);
  };
  return new Map(
    fragments
      .map((fragment) => {
        const onBridges = portsOnBridges(fragment, links);
        return [fragment, diffHairpin(onBridges, links, passes, served())] as const;
      })
      .filter(([, changes]) => changes.length > 0),
  );
}

/** As `observePods`, and without the limits of one pod's ports. */
async function observeBridged(
  netlink: View["netlink"],
  fragments: readonly PluggedFragment[],
): Promise<ObservedPod> {
  const [only, ...others] = fragments;
  return only === undefined || others.length > 0
    ? observePods(netlink, fragments)
    : observeNames(
        netlink,
        only.ports.flatMap(({ tap, bridge }) => [tap, bridge]),
      );
}

/** The links of some pods by name: one pod costs its own links, and not all of the host. */
async function observePods(
  netlink: View["netlink"],
  fragments: readonly PluggedFragment[],
): Promise<ObservedPod> {
  const [only, ...others] = fragments;
  if (only !== undefined && others.length === 0) return observePod(netlink, only);
  return new Map((await observeLinks(netlink)).map((link) => [link.name, link]));
}

/**
 * Text that differs whenever something may have changed that the kernel sends no rtnetlink event
 * for: rules and settings. With iptables-nft alone it costs a few system calls (60 µs, measured),
 * where listing the rules starts two programs. Throws `FIREWALL_FAILED`.
 */
export async function fingerprint(
  { firewall, sysctl }: View,
  fragments: readonly NetworkFragment[],
  signal: AbortSignal,
): Promise<string> {
  const keys = fragments.flatMap((fragment) => bridgeSettings(fragment).map(({ key }) => key));
  if (fragments.some((fragment) => hasFamily(fragment, 6))) keys.push(ipv6ForwardKey);
  const settings = [
    ...keys.map((key) => readOptional(sysctl, key) ?? ""),
    ...([4, 6] as const).map((family) => String(bridgeNf(sysctl, family))),
  ];
  const rules = await firewall.fingerprint(signal);
  return [sysctl.read(ipForwardKey), ...settings, rules].join("\n");
}

/** See `HostObservations.deviating`. */
export async function deviatingTogether(
  view: View,
  fragments: readonly PluggedFragment[],
  signal: AbortSignal,
): Promise<ReadonlySet<PluggedFragment>> {
  if (fragments.length === 0) return new Set();
  const { firewall } = view;
  const found = new Set(await firewall.deviating(fragments, signal));
  const links: ObservedPod = new Map(
    (await observeLinks(view.netlink)).map((link) => [link.name, link]),
  );
  for (const fragment of fragments)
    if (!found.has(fragment) && !isAsListed(view, fragment, links)) found.add(fragment);
  return found;
}

/** Whether a listing of links shows a fragment's ports to be as planned. */
function isAsListed(view: View, fragment: PluggedFragment, links: ObservedPod): boolean {
  // A listing shows neither VLANs nor queues, and a missing link is not for a listing to report.
  const isShown = ({ tap, vlan, rates, ifb }: PortDesired): boolean =>
    vlan === undefined &&
    rates === undefined &&
    (ifb === undefined || !links.has(ifb)) &&
    links.get(tap)?.queue !== "tbf";
  if (!fragment.ports.every(isShown)) return false;
  try {
    return diffPorts(view, fragment, links).length === 0;
  } catch {
    return false;
  }
}

async function compareNetwork(
  view: View,
  fragment: NetworkFragment,
  signal: AbortSignal,
): Promise<Change[]> {
  const changes = await compareBridge(view, fragment);
  // Rules before links: no packet is forwarded to a pod before the rules that judge it are there.
  return [...(await view.firewall.compareNetwork(fragment, signal)), ...changes];
}

/** (A bridge without its filter was made anew, or changed by another program.) */
const compareBridge = async (view: View, fragment: NetworkFragment): Promise<Change[]> =>
  diffNetwork(
    fragment,
    await observeNetwork(view, fragment),
    view.hostSeed,
    view.firewall.polices(fragment.bridge),
  );

async function comparePod(
  view: View,
  fragment: PluggedFragment,
  signal: AbortSignal,
): Promise<Change[]> {
  // Policy and guard before links: they decide about the first frame of a port that joins its
  // bridge. Links before rules, so that a published port leads to a pod that can answer.
  return [
    ...(await comparePoliced(view.firewall, [fragment], signal)),
    ...(await comparePorts(view, fragment)),
    ...(await compareOwnRules(view, fragment, signal)),
  ];
}

/** The rules of what a pod publishes; not looked for where it has never published anything. */
const compareOwnRules = async (
  { firewall }: View,
  fragment: PluggedFragment,
  signal: AbortSignal,
): Promise<Change[]> =>
  fragment.published === undefined ? [] : firewall.comparePod(fragment, signal);

const comparePorts = async (view: View, fragment: PluggedFragment): Promise<Change[]> =>
  diffPorts(view, fragment, await observePod(view.netlink, fragment));

function diffPorts(
  { sysctl, policyOf, served }: View,
  fragment: PluggedFragment,
  links: ObservedPod,
): Change[] {
  const filtered = diffBridgeFilter([fragment], policyOf, links);
  const observed = withBridgeFilter(links, filtered);
  const changes = [...filtered, ...diffPod(fragment, observed)];
  const passes = (family: Family): boolean | undefined => bridgeNf(sysctl, family);
  return [...changes, ...diffHairpin(fragment, observed, passes, served())];
}

export interface HostFacts {
  /** The driver and variant that would write rules now. */
  readonly firewall: FirewallFacts;
  readonly ipForward: boolean;
  /**
   * Whether frames between pods pass the FORWARD chain; undefined without br_netfilter. podnet
   * never writes it.
   */
  readonly bridgeNfCallIptables: boolean | undefined;
}

export async function observeFacts(view: View, signal: AbortSignal): Promise<HostFacts> {
  return {
    firewall: await view.firewall.facts(signal),
    ipForward: view.sysctl.read(ipForwardKey) === "1",
    bridgeNfCallIptables: bridgeNf(view.sysctl, 4),
  };
}
