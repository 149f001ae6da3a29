import type { Family } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { Kernel } from "./apply.ts";
import type { Change } from "../model/change.ts";
import {
  hasFamily,
  type Fragment,
  type FragmentKey,
  type NetworkFragment,
  type PluggedFragment,
} from "../model/desired.ts";
import {
  bridgeSettings,
  diffNetwork,
  ipForwardKey,
  ipv6ForwardKey,
  isUnfinished,
} from "./diff-network.ts";
import { detachLinks, diffPod, endLinks, forgetNeighbours } from "./diff-pod.ts";
import type { FirewallDriver, FirewallFacts } from "../firewall/driver.ts";
import { bridgeNf, diffHairpin, portsOnBridges } from "./hairpin.ts";
import { observeLink, observeLinks, observeNetwork, observePod, readOptional } from "./observe.ts";
import type { ObservedLink } from "../model/observed.ts";
import { networkMark, ownedBy, type Owner } from "../model/ownership.ts";
import { isOrphan, type Known, nothingKnown, sweepLinks } from "./sweep.ts";

/** Where to look, and by what configuration. */
export interface View extends Kernel {
  readonly firewall: FirewallDriver;
  /** Why parts of the guard are not in force, a line each. */
  readonly guardLacking: () => readonly string[];
  /** Takes away the rules that the other driver made when it was configured. */
  readonly formerRules: Comparison;
  /** Whether the other driver's rules are in force, as far as is remembered. */
  readonly switching: () => boolean;
  readonly hostSeed: string;
}

/** Looks at a part of the host and gives the changes that make it what it should be. */
export type Comparison = (signal: AbortSignal) => Promise<Change[]>;

/** What is missing of a fragment, or has changed. */
export function compareFragment(view: View, fragment: Fragment): Comparison {
  return fragment.kind === "network"
    ? (signal) => compareNetwork(view, fragment, signal)
    : (signal) => comparePod(view, fragment, signal);
}

/** The same but for the firewall. */
export function compareLinks(view: View, fragment: Fragment): Comparison {
  if (fragment.kind !== "network") return () => comparePorts(view, fragment);
  return async () => diffNetwork(fragment, await observeNetwork(view, fragment), view.hostSeed);
}

/** The rules of a pod or container, and what of its ports depends on them. Its links are left as they are. */
export function compareRules(view: View, fragment: PluggedFragment): Comparison {
  return async (signal) => {
    const observed = await observePod(view.netlink, fragment);
    const passes = (family: Family): boolean | undefined => bridgeNf(view.sysctl, family);
    return [
      ...diffHairpin(portsOnBridges(fragment, observed), observed, passes),
      ...(await view.firewall.comparePod(fragment, signal)),
    ];
  };
}

/**
 * Text that is another one whenever something may have changed that the kernel sends no rtnetlink event for: rules and
 * settings. With iptables-nft alone it costs a few system calls (60 µs, measured), where listing the rules starts two
 * programs. Throws `FIREWALL_FAILED`.
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

async function compareNetwork(
  view: View,
  fragment: NetworkFragment,
  signal: AbortSignal,
): Promise<Change[]> {
  const observed = await observeNetwork(view, fragment);
  const changes = diffNetwork(fragment, observed, view.hostSeed);
  // Rules before links: no packet is forwarded to a pod before the rules that judge it are there.
  return [...(await view.firewall.compareNetwork(fragment, signal)), ...changes];
}

async function comparePod(
  view: View,
  fragment: PluggedFragment,
  signal: AbortSignal,
): Promise<Change[]> {
  const changes = await comparePorts(view, fragment);
  // Links before rules: what is published leads to a pod that can answer.
  return fragment.published === undefined
    ? changes
    : [...changes, ...(await view.firewall.comparePod(fragment, signal))];
}

async function comparePorts(
  { netlink, sysctl }: View,
  fragment: PluggedFragment,
): Promise<Change[]> {
  const observed = await observePod(netlink, fragment);
  const changes = diffPod(fragment, observed);
  if (fragment.published === undefined) return changes;
  return [...changes, ...diffHairpin(fragment, observed, (family) => bridgeNf(sysctl, family))];
}

/** What is left of a fragment. Parts that do not depend on each other, links first: that ends traffic. */
export function compareRemoval(view: View, target: Fragment | FragmentKey): Comparison[] {
  const { key } = target;
  if (target.kind !== "network") {
    const links: Comparison = () => comparePluggedRemoval(view, target);
    const published = "published" in target && target.published !== undefined;
    const doomed = (owner: Owner): boolean => owner.kind === target.kind && owner.key === key;
    const rules: Comparison = (signal) => view.firewall.compareRemoval(doomed, signal);
    return published ? [links, rules] : [links];
  }
  const doomed = (owner: Owner): boolean => owner.kind === "network" && owner.key === key;
  // One that failed just after its birth has no mark yet.
  const unmarked = ({ name, alias }: ObservedLink): boolean =>
    alias === undefined && "bridge" in target && name === target.bridge;
  const isDoomed = (link: ObservedLink): boolean =>
    link.alias === networkMark(key) || (unmarked(link) && isUnfinished(link, view.hostSeed));
  const links: Comparison = async () =>
    endLinks((await observeLinks(view.netlink)).filter(isDoomed));
  return [links, (signal) => view.firewall.compareRemoval(doomed, signal)];
}

async function comparePluggedRemoval(
  view: View,
  target: PluggedFragment | FragmentKey,
): Promise<Change[]> {
  const ports = "ports" in target ? target.ports : [];
  const names = ports.map((port) => port.tap);
  return [...endLinks(await ownLinks(view, target, names)), ...forgetNeighbours(ports)];
}

/** Rules for what is published of who is going, and the host's memory of where its addresses were. */
export function compareUnpublished(view: View, fragment: PluggedFragment): Comparison[] {
  const { kind, key, ports, published } = fragment;
  const doomed = (owner: Owner): boolean => owner.kind === kind && owner.key === key;
  const rules: Comparison = (signal) => view.firewall.compareRemoval(doomed, signal);
  const neighbours: Comparison = () => Promise.resolve(forgetNeighbours(ports));
  return published === undefined ? [neighbours] : [rules, neighbours];
}

/** A pod's ports, or one of them, that still are on a bridge. */
export function compareDetached(
  view: View,
  target: { readonly pod: string; readonly tap?: IfName },
): Comparison {
  const names = target.tap === undefined ? [] : [target.tap];
  return async () => detachLinks(await ownLinks(view, { kind: "pod", key: target.pod }, names));
}

/** What bears our mark and has no row. */
export function compareKnown(view: View, known: Known): Comparison[] {
  const links: Comparison = async () =>
    sweepLinks(await observeLinks(view.netlink), known, view.hostSeed);
  const ruled: Known = { ...known, pods: known.ruled ?? known.pods };
  const doomed = (owner: Owner): boolean => isOrphan(owner, ruled);
  // The other driver's last: what has a row has rules of this one by now.
  return [links, (signal) => view.firewall.compareRemoval(doomed, signal), view.formerRules];
}

/** All that is ours, and what we changed of others'. */
export function compareDown(view: View): Comparison[] {
  const lowered: Comparison = async () =>
    view.memory.value.raised.map((name): Change => ({ kind: "set-adopted", name, up: false }));
  return [...compareKnown(view, nothingKnown), lowered, compareUnforwarded(view, [4, 6])];
}

/** Forwarding of these families as it was before podnet set it. */
export function compareUnforwarded(view: View, families: readonly Family[]): Comparison {
  const { memory, sysctl } = view;
  return async () =>
    families.flatMap((family): Change[] => {
      const key = family === 4 ? ipForwardKey : ipv6ForwardKey;
      const to = memory.forward(family);
      return to === undefined ? [] : [{ kind: "set-sysctl", key, from: sysctl.read(key), to }];
    });
}

export interface HostFacts {
  /** What rules would be written with now. */
  readonly firewall: FirewallFacts;
  readonly ipForward: boolean;
  /** Whether frames between pods pass the FORWARD chain; undefined without br_netfilter. Never written by podnet. */
  readonly bridgeNfCallIptables: boolean | undefined;
}

export async function observeFacts(view: View, signal: AbortSignal): Promise<HostFacts> {
  return {
    firewall: await view.firewall.facts(signal),
    ipForward: view.sysctl.read(ipForwardKey) === "1",
    bridgeNfCallIptables: bridgeNf(view.sysctl, 4),
  };
}

/** A fragment's links that bear its mark: the named ones, or all, which takes a look at every link of the host. */
async function ownLinks(
  { netlink }: View,
  { kind, key }: FragmentKey,
  names: readonly IfName[],
): Promise<ObservedLink[]> {
  const links =
    names.length === 0
      ? await observeLinks(netlink)
      : await Promise.all(names.map((name) => observeLink(netlink, name)));
  return links
    .filter((link) => link !== undefined)
    .filter((link) => ownedBy(link.alias, kind, key));
}
