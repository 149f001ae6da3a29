import { assertNever } from "../../core/brand.ts";
import type { Family } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { Change } from "../model/change.ts";
import {
  type Fragment,
  type FragmentKey,
  isOurGroup,
  type PluggedFragment,
  type PortDesired,
} from "../model/desired.ts";
import type { ObservedLink } from "../model/observed.ts";
import { networkMark, ownedBy, type Owner } from "../model/ownership.ts";
import type { Comparison, View } from "./compare.ts";
import { ipForwardKey, ipv6ForwardKey, isUnfinished } from "./diff-network.ts";
import { detachLinks, endLinks, forgetNeighbours } from "./diff-pod.ts";
import { observeLink, observeLinks } from "./observe.ts";
import { isOrphan, type Known, nothingKnown, sweepLinks } from "./sweep.ts";

/** The target of a removal. */
export type Removal =
  /** All that the owner of a fragment may have made. An adopted bridge stays. */
  | Fragment
  | FragmentKey
  /** A pod's ports, or one of them, leave their bridges: no traffic passes from then on. */
  | { readonly kind: "ports"; readonly pod: string; readonly tap?: IfName }
  /**
   * Rules for what is published, the guard's elements, and the host's neighbour entries. No link is
   * looked at.
   */
  | { readonly kind: "published"; readonly of: PluggedFragment }
  /** The host's neighbour entries for the addresses of ports, which their guests no longer have. */
  | { readonly kind: "neighbours"; readonly of: readonly PortDesired[] }
  /** Connections by the addresses of pods whose links and rules are gone. */
  | { readonly kind: "connections"; readonly of: readonly PluggedFragment[] }
  /**
   * Connections through ports that a pod no longer publishes. Their rules are gone, and no rule
   * judges an established connection.
   */
  | { readonly kind: "withdrawn-connections"; readonly of: PluggedFragment }
  /** Connections of pods that their policies do not allow any more. */
  | { readonly kind: "denied-connections"; readonly of: readonly PluggedFragment[] }
  /** Forwarding of families that no network has any more goes back to what it was. */
  | { readonly kind: "forwarding"; readonly families: readonly Family[] }
  /** What bears our mark and has no row. */
  | { readonly kind: "orphans"; readonly known: Known }
  /** All that is ours; and what we changed of others is put back. */
  | { readonly kind: "everything" };

/** Removals that look at links and rules; connections are in conntrack alone. */
export type ComparedRemoval = Exclude<
  Removal,
  { readonly kind: "connections" | "withdrawn-connections" | "denied-connections" }
>;

/** The remains of the target, in parts that do not depend on each other. */
export function compareRemoval(view: View, target: ComparedRemoval): Comparison[] {
  switch (target.kind) {
    case "network":
    case "pod":
    case "attachment":
      return compareOwner(view, target);
    case "ports":
      return [
        compareDetached(view, target),
        (signal) =>
          view.firewall.comparePortRemoval(
            { kind: "pod", key: target.pod, ...(target.tap && { tap: target.tap }) },
            signal,
          ),
      ];
    case "published":
      return compareUnpublished(view, target.of);
    case "neighbours":
      return [() => compareNeighbours(view, target.of)];
    case "forwarding":
      return [compareUnforwarded(view, target.families)];
    case "orphans":
      return compareKnown(view, target.known);
    case "everything":
      return compareDown(view);
    default:
      return assertNever(target);
  }
}

/**
 * The remains of a fragment, in parts that do not depend on each other. Links go first, which ends
 * the traffic.
 */
function compareOwner(view: View, target: Fragment | FragmentKey): Comparison[] {
  const { key } = target;
  if (target.kind !== "network") {
    const links: Comparison = () => comparePluggedRemoval(view, target);
    const guard: Comparison = (signal) => view.firewall.comparePortRemoval(target, signal);
    const published = "published" in target && target.published !== undefined;
    const isOwned = (owner: Owner): boolean => owner.kind === target.kind && owner.key === key;
    const rules: Comparison = (signal) => view.firewall.compareRemoval(isOwned, signal);
    const policy: Comparison = (signal) => view.firewall.comparePolicyRemoval(target, signal);
    // (The rules' removal takes the policy along.)
    return [links, guard, published ? rules : policy];
  }
  const isOwned = (owner: Owner): boolean => owner.kind === "network" && owner.key === key;
  // One that failed just after its birth has no mark yet.
  const unmarked = ({ name, alias }: ObservedLink): boolean =>
    alias === undefined && "bridge" in target && name === target.bridge;
  const isOwnLink = (link: ObservedLink): boolean =>
    link.alias === networkMark(key) || (unmarked(link) && isUnfinished(link, view.hostSeed));
  const links: Comparison = async () =>
    endLinks((await observeLinks(view.netlink)).filter(isOwnLink));
  return [links, (signal) => view.firewall.compareRemoval(isOwned, signal)];
}

async function comparePluggedRemoval(
  view: View,
  target: PluggedFragment | FragmentKey,
): Promise<Change[]> {
  const ports = "ports" in target ? target.ports : [];
  // An ifb outlives its tap, which ends with its machine.
  const names = ports.flatMap(({ tap, ifb }) => (ifb === undefined ? [tap] : [tap, ifb]));
  return [...endLinks(await ownLinks(view, target, names)), ...forgetNeighbours(ports)];
}

/** Rules for what is published, and the host's neighbour entries of the addresses. */
function compareUnpublished(view: View, fragment: PluggedFragment): Comparison[] {
  const { kind, key, ports, published } = fragment;
  const isOwned = (owner: Owner): boolean => owner.kind === kind && owner.key === key;
  const rules: Comparison = (signal) => view.firewall.compareRemoval(isOwned, signal);
  const guard: Comparison = (signal) => view.firewall.comparePortRemoval(fragment, signal);
  const neighbours: Comparison = () => Promise.resolve(forgetNeighbours(ports));
  const policy: Comparison = (signal) => view.firewall.comparePolicyRemoval(fragment, signal);
  // (The rules' removal takes the policy along.)
  return [guard, published === undefined ? policy : rules, neighbours];
}

/** Each bridge is looked for once: there may be hundreds of ports. */
async function compareNeighbours(
  { netlink }: View,
  ports: readonly PortDesired[],
): Promise<Change[]> {
  const changes: Change[] = [];
  for (const bridge of new Set(ports.map((port) => port.bridge))) {
    const link = await observeLink(netlink, bridge);
    const its = ports.filter((port) => port.bridge === bridge);
    if (link !== undefined) changes.push(...forgetNeighbours(its, link.index));
  }
  return changes;
}

/** A pod's ports, or one of them, that still are on a bridge. */
function compareDetached(
  view: View,
  target: { readonly pod: string; readonly tap?: IfName },
): Comparison {
  const names = target.tap === undefined ? [] : [target.tap];
  return async () => detachLinks(await ownLinks(view, { kind: "pod", key: target.pod }, names));
}

/** What bears our mark and has no row. */
function compareKnown(view: View, known: Known): Comparison[] {
  const links: Comparison = async () =>
    sweepLinks(await observeLinks(view.netlink), known, view.hostSeed);
  const ruled: Known = { ...known, pods: known.ruled ?? known.pods };
  const isOwned = (owner: Owner): boolean => isOrphan(owner, ruled);
  // The other driver's rules go last: every row has rules of this driver by now.
  const rules: Comparison = (signal) => view.firewall.compareRemoval(isOwned, signal);
  const learning: Comparison = (signal) => view.firewall.compareLearning(undefined, signal);
  return [links, rules, learning, view.formerRules];
}

/** All that is ours, and what we changed of others'. */
function compareDown(view: View): Comparison[] {
  const lowered: Comparison = async () =>
    view.memory.value.raised.map((name): Change => ({ kind: "set-adopted", name, up: false }));
  return [...compareKnown(view, nothingKnown), lowered, compareUnforwarded(view, [4, 6])];
}

/** Forwarding of these families as it was before podnet set it. */
function compareUnforwarded(view: View, families: readonly Family[]): Comparison {
  const { memory, sysctl } = view;
  return async () =>
    families.flatMap((family): Change[] => {
      const key = family === 4 ? ipForwardKey : ipv6ForwardKey;
      const to = memory.forward(family);
      return to === undefined ? [] : [{ kind: "set-sysctl", key, from: sysctl.read(key), to }];
    });
}

/** An ifb that was made and not marked yet. (An unmarked tap ends with podnetd.) */
const isNewborn = ({ kind, alias, group }: ObservedLink): boolean =>
  kind === "ifb" && alias === undefined && isOurGroup(group);

/**
 * A fragment's links that bear its mark: the named ones; without names all of them, which takes a
 * look at every link of the host.
 */
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
    .filter((link) => ownedBy(link.alias, kind, key) || (names.length > 0 && isNewborn(link)));
}
