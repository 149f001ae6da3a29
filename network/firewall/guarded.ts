import type { Change } from "../model/change.ts";
import { bridgeMac } from "../model/bridge-mac.ts";
import type { IfName } from "../../core/names.ts";
import type {
  Fragment,
  FragmentKey,
  NetworkFragment,
  PluggedFragment,
  PortDesired,
} from "../model/desired.ts";
import type { OverlayRuled } from "../model/overlay.ts";
import type { SenderChange } from "../model/overlay-senders.ts";
import type { Memory } from "../kernel/memory.ts";
import { NftablesDriver, type NftablesOptions } from "./nftables/driver.ts";
import { type Drop, isIndex, parseDrops, placeDrops } from "./nftables/drops.ts";
import { hostGuardElements, shareElements } from "./nftables/element.ts";
import { bridgeGuardElements, describePort, portElements } from "./nftables/port-elements.ts";
import {
  parseRefusals,
  placeRefusals,
  type Refusal,
  type RefusalKind,
} from "./nftables/refusals.ts";
import type { SetName } from "../model/nftables-sets.ts";
import { changedSenders, senderElements } from "./nftables/senders-table.ts";
import type { RuleTable } from "./nftables/rule-table.ts";
import type { MarkedOwner } from "./nftables/elements.ts";
import type { FirewallDriver } from "./driver.ts";

/** The hint for a host where a part of the guard is not in force. */
export const guardHint =
  "Install libnftables1 and use a kernel with CONFIG_NF_TABLES_BRIDGE and CONFIG_NFT_REJECT_INET; then start podnetd again";

type Contents = Pick<NftablesOptions, "ofNetwork" | "ofPod" | "ports" | "ofOverlay" | "ofSenders">;

/** The elements that each table takes from networks, pods and overlays. */
const contents = (hostSeed: string, off: boolean): readonly Contents[] => [
  {
    ofNetwork: (network) => bridgeGuardElements(network, bridgeMac(hostSeed, network.bridge)),
    ofPod: off ? () => [] : portElements,
    ports: true,
  },
  { ofNetwork: hostGuardElements, ofPod: () => [] },
  { ofNetwork: shareElements, ofPod: () => [] },
  {
    ofNetwork: () => [],
    ofPod: () => [],
    ofOverlay: senderElements,
    ofSenders: changedSenders,
  },
];

/** Which of them have something of networks. */
const ofNetworks = 3;

/** The sets in which the kernel counts refusals. */
const countedSets = [
  ["host", "refused"],
  ["connections", "exceeded"],
] as const satisfies readonly (readonly [RefusalKind, SetName])[];

/** The owner of ports, and which of them; none: all. */
export interface PortTarget extends FragmentKey {
  readonly ports?: readonly PortDesired[];
  readonly tap?: IfName;
}

/** Whether elements belong to the target's ports, or to its owner where it names no ports. */
export function isOf({ kind, key, ports = [] }: PortTarget): (owner: MarkedOwner) => boolean {
  const marks = new Set(ports.map(({ alias }) => alias));
  return (owner) =>
    owner.kind === kind && owner.key === key && (marks.size === 0 || marks.has(owner.mark));
}

/**
 * The guard: it restricts what guests may send, with tables of our own, written with nftables
 * whichever driver writes the other rules. It has elements for networks, because its rules know
 * ports by their link group, and for each port of a pod or container its MAC and addresses.
 */
export class Guard {
  readonly #tables: readonly RuleTable[];
  readonly #parts: readonly NftablesDriver[];
  readonly #off: boolean;
  readonly #memory: Memory;

  /**
   * `tables` as in `guardTables`; `hostSeed` is the seed of bridges' MACs. With `off`, the guard
   * only removes what an earlier, enabled guard made.
   */
  constructor(
    tables: readonly RuleTable[],
    memory: Memory,
    { off, hostSeed }: { readonly off: boolean; readonly hostSeed: string },
  ) {
    const all = contents(hostSeed, off);
    this.#tables = tables;
    this.#memory = memory;
    this.#off = off;
    this.#parts = tables.map(
      (table, i) =>
        new NftablesDriver({
          table,
          memory,
          configured: false,
          ...all[i],
        }),
    );
  }

  async compareNetwork(fragment: NetworkFragment, signal: AbortSignal): Promise<Change[]> {
    const parts = this.#parts.slice(0, ofNetworks);
    return this.#each((part) => part.compareNetwork(fragment, signal), parts);
  }

  /** The hosts that may send to pods here by their own addresses. */
  async compareOverlay(overlay: OverlayRuled, signal: AbortSignal): Promise<Change[]> {
    return this.#sending((part) => part.compareOverlay(overlay, signal));
  }

  async compareSenders(change: SenderChange, signal: AbortSignal): Promise<Change[]> {
    return this.#sending((part) => part.compareSenders(change, signal));
  }

  /** The changes that let these ports send what is theirs, and nothing else. */
  async comparePorts(
    fragments: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<Change[]> {
    const some = fragments.filter(hasPorts);
    const [only] = some;
    if (only === undefined) return [];
    return this.#ofPorts((part) =>
      some.length === 1 ? part.comparePod(only, signal) : part.comparePods(some, signal),
    );
  }

  /**
   * The changes that take from ports what they may send: of the target's ports, of the one that it
   * names, or else of all that its owner has.
   */
  async comparePortRemoval(target: PortTarget, signal: AbortSignal): Promise<Change[]> {
    const { tap } = target;
    const isTheirs = isOf(target);
    return this.#ofPorts((part) =>
      part.compareRemoval(
        (owner) => isTheirs(owner) && (tap === undefined || part.hasAt(owner.mark, tap)),
        signal,
      ),
    );
  }

  /** The pods of whose ports the elements are not as wanted. */
  async deviating(
    fragments: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<readonly PluggedFragment[]> {
    const some = fragments.filter(hasPorts);
    const [part] = this.#parts;
    if (this.#off || some.length === 0 || part === undefined) return [];
    return part.deviating(some, signal);
  }

  async compareRemoval(
    removed: (owner: MarkedOwner) => boolean,
    signal: AbortSignal,
  ): Promise<Change[]> {
    // Most removals are of pods: a table of hosts that podnet did not make is looked for where
    // overlays are removed.
    const name = this.#tables[ofNetworks]?.model.name ?? "";
    const all = this.#memory.madeTable(name) || removed({ kind: "overlay", key: "", mark: "" });
    const parts = all ? this.#parts : this.#parts.slice(0, ofNetworks);
    return this.#each((part) => part.compareRemoval(removed, signal), parts);
  }

  /**
   * What was refused of ports that are there, by one listing for each kind. `links` has the host's
   * links by index. Throws `FIREWALL_FAILED`.
   */
  async refusals(links: () => Promise<ReadonlyMap<number, string>>): Promise<readonly Refusal[]> {
    const found: Refusal[] = [];
    for (const [kind, set] of countedSets) {
      const table = this.#tables.find(({ model }) => model.sets.includes(set));
      const text = this.#off ? undefined : await table?.counted(set);
      const listed = text === undefined ? [] : parseRefusals(text);
      if (listed.length === 0) continue;
      // Links are listed after refusals: a port that is missing has gone.
      const { refusals, stale } = placeRefusals(kind, listed, await links());
      found.push(...refusals);
      if (stale.length > 0) await table?.discount(set, stale);
    }
    return found;
  }

  /**
   * What was dropped at ports that are there, by one listing of what was dropped alone. `links` has
   * the host's links by index. Throws `FIREWALL_FAILED`.
   */
  async drops(links: () => Promise<ReadonlyMap<number, string>>): Promise<readonly Drop[]> {
    const [table] = this.#tables;
    const text = this.#off ? undefined : await table?.counted("drops");
    if (table === undefined || text === undefined) return [];
    const listed = parseDrops(text);
    const names = listed.some(({ link }) => isIndex(link)) ? await links() : new Map();
    const { drops, stale } = placeDrops(listed, names);
    if (stale.length > 0) await table.discount("drops", stale);
    return drops;
  }

  fingerprint(): string {
    return this.#off ? "" : `${this.#tables[0]?.generation()}`;
  }

  describe(fragment: Fragment): readonly string[] {
    if (this.#off || (fragment.kind === "network" && !fragment.firewall)) return [];
    if (fragment.kind !== "network")
      return fragment.ports.map((port) => describePort(port, fragment.sources));
    return this.#parts.slice(0, ofNetworks).flatMap((part) => part.describe(fragment));
  }

  describeChange(before: PluggedFragment, after: PluggedFragment): readonly string[] {
    const had = new Set(this.describe(before));
    return this.describe(after).filter((line) => !had.has(line));
  }

  describeOverlay(overlay: OverlayRuled): readonly string[] {
    return this.#off ? [] : (this.#parts[ofNetworks]?.describeOverlay(overlay) ?? []);
  }

  /** Why parts of it are not in force, a line each. */
  get lacking(): readonly string[] {
    return this.#tables.flatMap(({ lacking }) => lacking ?? []);
  }

  #ofPorts(compare: (part: NftablesDriver) => Promise<Change[]>): Promise<Change[]> {
    return this.#each(compare, this.#parts.slice(0, 1));
  }

  /**
   * When the guard is off, it drops no packets that elements would have to accept, so the tables
   * stay empty.
   */
  async #sending(compare: (part: NftablesDriver) => Promise<Change[]>): Promise<Change[]> {
    const part = this.#parts[ofNetworks];
    return part === undefined || this.#off ? [] : compare(part);
  }

  async #each(
    compare: (part: NftablesDriver) => Promise<Change[]>,
    parts: readonly NftablesDriver[] = this.#parts,
  ): Promise<Change[]> {
    const found: Change[] = [];
    for (const [i, part] of parts.entries()) {
      const { name } = this.#tables[i]?.model ?? { name: "" };
      // When the guard is off, podnet looks only for tables that its records name.
      if (!this.#off || this.#memory.madeTable(name)) found.push(...(await compare(part)));
    }
    return found;
  }
}

/** A pod that has never had rules of the driver's has none to look for. */
const hasRules = ({ published }: PluggedFragment): boolean => published !== undefined;

const hasPorts = ({ ports }: PluggedFragment): boolean => ports.length > 0;

/** A driver with the guard. */
export interface GuardedDriver extends FirewallDriver {
  /** As in `Guard`: a port's elements are there before it joins its bridge, and outlive it. */
  readonly comparePorts: Guard["comparePorts"];
  readonly comparePortRemoval: Guard["comparePortRemoval"];
  readonly drops: Guard["drops"];
}

/** A driver whose networks and ports are guarded as well. */
export const guarded = (driver: FirewallDriver, guard: Guard): GuardedDriver => ({
  comparePorts: (fragments, signal) => guard.comparePorts(fragments, signal),
  comparePortRemoval: (target, signal) => guard.comparePortRemoval(target, signal),
  drops: (links) => guard.drops(links),
  compareNetwork: async (fragment, signal) => [
    ...(await guard.compareNetwork(fragment, signal)),
    ...(await driver.compareNetwork(fragment, signal)),
  ],
  comparePod: (fragment, signal) => driver.comparePod(fragment, signal),
  deviating: async (fragments, signal) => {
    const found = new Set(await guard.deviating(fragments, signal));
    for (const fragment of await driver.deviating(fragments.filter(hasRules), signal))
      found.add(fragment);
    return fragments.filter((fragment) => found.has(fragment));
  },
  comparePods: (fragments, signal) => driver.comparePods(fragments, signal),
  compareOverlay: async (overlay, signal) => [
    ...(await guard.compareOverlay(overlay, signal)),
    ...(await driver.compareOverlay(overlay, signal)),
  ],
  compareSenders: (change, signal) => guard.compareSenders(change, signal),
  // The protection is removed last.
  compareRemoval: async (removed, signal) => [
    ...(await driver.compareRemoval(removed, signal)),
    ...(await guard.compareRemoval(removed, signal)),
  ],
  fingerprint: async (signal) => [await driver.fingerprint(signal), guard.fingerprint()].join("\n"),
  facts: (signal) => driver.facts(signal),
  describeOverlay: (overlay) => [
    ...driver.describeOverlay(overlay),
    ...guard.describeOverlay(overlay),
  ],
  describe: (fragment) => [...driver.describe(fragment), ...guard.describe(fragment)],
  describeChange: (before, after) => [
    ...guard.describeChange(before, after),
    ...driver.describeChange(before, after),
  ],
});
