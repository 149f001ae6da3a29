import type { Cidr, Family, Ip } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { Refusal } from "../firewall/nftables/refusals.ts";
import { type FlowTrace, openFlowTrace, type TracedFlow } from "../firewall/flow-trace.ts";
import { observeObstacles } from "../firewall/obstacles.ts";
import type { Denied } from "../firewall/nftables/denials.ts";
import type { Drop } from "../firewall/nftables/drops.ts";
import type { Learned } from "../firewall/nftables/learn-table.ts";
import type { HostKernel } from "../kernel/kernel.ts";
import type { FragmentKey, NetworkFragment, PluggedFragment } from "../model/desired.ts";
import type { LinksOwner, NamedLink, ObservedRouter } from "../model/observed.ts";
import type { Obstacle } from "../model/obstacle.ts";
import {
  deviatingTogether,
  filterLacking,
  fingerprint,
  type HostFacts,
  observeFacts,
  type View,
} from "./compare.ts";
import { bridgeNf } from "./hairpin.ts";
import { observeLink, observeNamed, observeRemains, observeRouter } from "./observe.ts";
import { observeOverlaps, observeOverlapsOf, type Overlap } from "./overlap.ts";

/** The queries of host state that podnet does not change. */
export interface HostObservations {
  /** The links of these names, as far as they are there. */
  links(names: readonly IfName[]): Promise<readonly NamedLink[]>;
  /** The names of links, by their indexes; of those that are there. */
  namesOf(indexes: readonly number[]): Promise<readonly string[]>;
  /**
   * Of these owners, the keys of those that may have left a link: one that bears a mark of theirs,
   * or an unmarked one with one of their names. One listing of the host's links for all.
   */
  withLinks(owners: readonly LinksOwner[]): Promise<ReadonlySet<string>>;
  /**
   * Of these pods and containers, those that are not as planned, or cannot be compared with others:
   * by one listing of links and one look at rules, whose cost hardly grows with them. `apply` makes
   * each as planned. Throws `FIREWALL_FAILED`, `CANCELLED`.
   */
  deviating(
    fragments: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<ReadonlySet<PluggedFragment>>;
  /** The host's end of a bridge, from which guests are answered; undefined without such a link. */
  router(bridge: IfName): Promise<ObservedRouter | undefined>;
  /** The host's objects that overlap a network to be made. */
  overlaps(fragment: NetworkFragment): Promise<readonly Overlap[]>;
  /** As above, for subnets of which podnet has no link. */
  overlapsOf(subnets: readonly Cidr[]): Promise<readonly Overlap[]>;
  /** For `podnet info` and error reports. Throws `FIREWALL_FAILED`. */
  facts(signal: AbortSignal): Promise<HostFacts>;
  /**
   * Foreign chains that drop packets forwarded to these networks. With iptables the result is
   * empty: podnet's rules come before them.
   */
  obstacles(
    networks: readonly NetworkFragment[],
    signal: AbortSignal,
  ): Promise<readonly Obstacle[]>;
  /**
   * Text that differs whenever something may have changed that rtnetlink does not report; cheap.
   */
  fingerprint(fragments: readonly NetworkFragment[], signal: AbortSignal): Promise<string>;
  /**
   * What was refused of ports that are there, on the way to the host and of connections, by kind.
   * Throws `FIREWALL_FAILED`.
   */
  refusals(signal: AbortSignal): Promise<readonly Refusal[]>;
  /**
   * What the guard dropped at the ports that are there, by kind. Takes one listing, of drops alone.
   * Throws `FIREWALL_FAILED`.
   */
  drops(signal: AbortSignal): Promise<readonly Drop[]>;
  /**
   * What policies denied of pods and containers that are there, by rule. Takes two listings, of
   * denials alone. Throws `FIREWALL_FAILED`.
   */
  denials(signal: AbortSignal): Promise<readonly Denied<FragmentKey>[]>;
  /** Where the pod that is learned from has opened connections to. Throws `FIREWALL_FAILED`. */
  learned(signal: AbortSignal): Promise<readonly Learned[]>;
  /** The pod or container with a policy that has an address on a bridge, as far as was looked. */
  holderAt(bridge: IfName, address: Ip): FragmentKey | undefined;
  /** Whether frames between ports of a bridge pass the host's rules of this family. */
  bridgedPass(bridge: IfName, family: Family): Promise<boolean>;
  /**
   * Has the kernel trace the next packets of a flow, until it is disposed. Throws
   * `FIREWALL_FAILED`, `SYSCALL_FAILED`.
   */
  traceFlow(flow: TracedFlow): Promise<FlowTrace>;
  /** Why parts of the guard are not in force, a line each. Known once a network has been made. */
  readonly guardLacking: readonly string[];
}

/** `inTurn` runs a look after the changes that were asked for before it. */
export const hostObservations = (
  view: View,
  kernel: HostKernel,
  inTurn: <T>(look: () => Promise<T>, signal: AbortSignal) => Promise<T>,
): HostObservations => ({
  links: async (names) => {
    const found = await Promise.all(names.map((name) => observeNamed(view.netlink, name)));
    return found.filter((link) => link !== undefined);
  },
  namesOf: async (indexes) => {
    const found = await view.netlink.linksNamed(indexes);
    return found.flatMap((link) => (link === undefined ? [] : link.name));
  },
  withLinks: (owners) => observeRemains(view.netlink, owners),
  deviating: (fragments, signal) =>
    inTurn(() => deviatingTogether(view, fragments, signal), signal),
  router: (bridge) => observeRouter(view.netlink, bridge),
  overlaps: (fragment) => observeOverlaps(view.netlink, fragment),
  overlapsOf: (subnets) => observeOverlapsOf(view.netlink, subnets),
  facts: (signal) => observeFacts(view, signal),
  obstacles: async (networks, signal) => {
    if ((await view.firewall.facts(signal)) !== "nftables") return [];
    return observeObstacles(kernel, networks, signal);
  },
  fingerprint: (fragments, signal) => inTurn(() => fingerprint(view, fragments, signal), signal),
  drops: (signal) => inTurn(() => view.firewall.drops(() => linkNames(view)), signal),
  denials: (signal) => inTurn(() => view.firewall.denials(), signal),
  learned: (signal) => inTurn(() => view.firewall.learned(), signal),
  holderAt: (bridge, address) => view.firewall.holderAt(bridge, address),
  refusals: (signal) => inTurn(() => view.refusals(() => linkNames(view)), signal),
  bridgedPass: async (bridge, family) => {
    const everywhere = bridgeNf(view.sysctl, family);
    if (everywhere !== false) return everywhere === true;
    return (await observeLink(view.netlink, bridge))?.nfCall === true;
  },
  traceFlow: (flow) => openFlowTrace(kernel, flow),
  get guardLacking() {
    return [...view.guardLacking(), ...filterLacking(view)];
  },
});

/** The host's links by index. */
const linkNames = async ({ netlink }: View): Promise<ReadonlyMap<number, string>> =>
  new Map((await netlink.links()).map(({ index, name }) => [index, name]));
