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
import { sharesTable, sharingChains, sharingElements } from "./nftables/shares-table.ts";
import type { RuleTable } from "./nftables/rule-table.ts";
import type { MarkedOwner } from "./nftables/elements.ts";
import type { FirewallDriver } from "./driver.ts";

/** The hint for a host where a part of the guard is not in force. */
export const guardHint =
  "Install libnftables1 and use a kernel with CONFIG_NF_TABLES_BRIDGE and CONFIG_NFT_REJECT_INET; then start podnetd again";

type Contents = Pick<
  NftablesOptions,
  "ofNetwork" | "ofPod" | "chainsOf" | "ports" | "ofOverlay" | "ofSenders"
>;

/** The elements that each table takes from networks, pods and overlays. */
const contents = (hostSeed: string, off: boolean): readonly Contents[] => [
  {
    ofNetwork: (network) => bridgeGuardElements(network, bridgeMac(hostSeed, network.bridge)),
    ofPod: off ? () => [] : portElements,
    ports: true,
  },
  { ofNetwork: hostGuardElements, ofPod: () => [] },
  {
    ofNetwork: shareElements,
    ofPod: off ? () => [] : sharingElements,
    chainsOf: off ? () => [] : sharingChains,
    ports: true,
  },
  {
    ofNetwork: () => [],
    ofPod: () => [],
    ofOverlay: senderElements,
    ofSenders: changedSenders,
  },
];

/** One of the guard's tables, with the driver that fills it. */
interface Part {
  readonly table: RuleTable;
  readonly driver: NftablesDriver;
  /** It has something of ports: of each port, or of pods with several. */
  readonly ports: boolean;
}

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
  readonly #parts: readonly Part[];
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
    this.#memory = memory;
    this.#off = off;
    this.#parts = tables.map((table, i) => ({
      table,
      driver: new NftablesDriver({ table, memory, configured: false, ...all[i] }),
      ports: all[i]?.ports === true,
    }));
  }

  async compareNetwork(fragment: NetworkFragment, signal: AbortSignal): Promise<Change[]> {
    const parts = this.#parts.slice(0, ofNetworks);
    return this.#each(({ driver }) => driver.compareNetwork(fragment, signal), parts);
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
    return this.#each(async ({ table, driver }) => {
      const some = fragments.filter((fragment) => concerns(table, fragment));
      const [only] = some;
      if (only === undefined) return [];
      return some.length === 1 ? driver.comparePod(only, signal) : driver.comparePods(some, signal);
    }, this.#ofPorts);
  }

  /**
   * The changes that take from ports what they may send: of the target's ports, of the one that it
   * names, or else of all that its owner has.
   */
  async comparePortRemoval(target: PortTarget, signal: AbortSignal): Promise<Change[]> {
    const { tap } = target;
    const isTheirs = isOf(target);
    const [guard] = this.#parts;
    const isRemoved = (owner: MarkedOwner): boolean =>
      isTheirs(owner) && (tap === undefined || guard?.driver.hasAt(owner.mark, tap) === true);
    return this.#each(({ driver }) => driver.compareRemoval(isRemoved, signal), this.#ofPorts);
  }

  /** The pods of whose ports the elements are not as wanted. */
  async deviating(
    fragments: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<readonly PluggedFragment[]> {
    const found = new Set<PluggedFragment>();
    for (const { table, driver } of this.#off ? [] : this.#ofPorts) {
      const some = fragments.filter((fragment) => concerns(table, fragment));
      if (some.length === 0) continue;
      for (const fragment of await driver.deviating(some, signal)) found.add(fragment);
    }
    return [...found];
  }

  async compareRemoval(
    removed: (owner: MarkedOwner) => boolean,
    signal: AbortSignal,
  ): Promise<Change[]> {
    // Most removals are of pods: a table of hosts that podnet did not make is looked for where
    // overlays are removed.
    const name = this.#parts[ofNetworks]?.table.model.name ?? "";
    const all = this.#memory.madeTable(name) || removed({ kind: "overlay", key: "", mark: "" });
    const parts = all ? this.#parts : this.#parts.slice(0, ofNetworks);
    return this.#each(({ driver }) => driver.compareRemoval(removed, signal), parts);
  }

  /**
   * What was refused of ports that are there, by one listing for each kind. `links` has the host's
   * links by index. Throws `FIREWALL_FAILED`.
   */
  async refusals(links: () => Promise<ReadonlyMap<number, string>>): Promise<readonly Refusal[]> {
    const found: Refusal[] = [];
    for (const [kind, set] of countedSets) {
      const { table } = this.#parts.find((part) => part.table.model.sets.includes(set)) ?? {};
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
    const table = this.#parts[0]?.table;
    const text = this.#off ? undefined : await table?.counted("drops");
    if (table === undefined || text === undefined) return [];
    const listed = parseDrops(text);
    const names = listed.some(({ link }) => isIndex(link)) ? await links() : new Map();
    const { drops, stale } = placeDrops(listed, names);
    if (stale.length > 0) await table.discount("drops", stale);
    return drops;
  }

  fingerprint(): string {
    return this.#off ? "" : `${this.#parts[0]?.table.generation()}`;
  }

  describe(fragment: Fragment): readonly string[] {
    if (this.#off || (fragment.kind === "network" && !fragment.firewall)) return [];
    if (fragment.kind !== "network")
      return fragment.ports.map((port) => describePort(port, fragment.sources));
    return this.#parts.slice(0, ofNetworks).flatMap(({ driver }) => driver.describe(fragment));
  }

  describeChange(before: PluggedFragment, after: PluggedFragment): readonly string[] {
    const had = new Set(this.describe(before));
    return this.describe(after).filter((line) => !had.has(line));
  }

  describeOverlay(overlay: OverlayRuled): readonly string[] {
    return this.#off ? [] : (this.#parts[ofNetworks]?.driver.describeOverlay(overlay) ?? []);
  }

  /** Why parts of it are not in force, a line each. */
  get lacking(): readonly string[] {
    return this.#parts.flatMap(({ table }) => table.lacking ?? []);
  }

  get #ofPorts(): readonly Part[] {
    return this.#parts.filter(({ ports }) => ports);
  }

  /**
   * When the guard is off, it drops no packets that elements would have to accept, so the tables
   * stay empty.
   */
  async #sending(compare: (part: NftablesDriver) => Promise<Change[]>): Promise<Change[]> {
    const part = this.#parts[ofNetworks];
    return part === undefined || this.#off ? [] : compare(part.driver);
  }

  async #each(
    compare: (part: Part) => Promise<Change[]>,
    parts: readonly Part[] = this.#parts,
  ): Promise<Change[]> {
    const found: Change[] = [];
    // When the guard is off, podnet looks only for tables that its records name.
    for (const part of parts)
      if (!this.#off || this.#memory.madeTable(part.table.model.name))
        found.push(...(await compare(part)));
    return found;
  }
}

/** A pod that has never had rules of the driver's has none to look for. */
const hasRules = ({ published }: PluggedFragment): boolean => published !== undefined;

/** A table of shares has only pods with several ports, and pods that had several. */
const concerns = ({ model, elements }: RuleTable, { ports }: PluggedFragment): boolean =>
  model === sharesTable
    ? ports.some(({ alias, sharing }) => sharing === true || elements.of(alias).length > 0)
    : ports.length > 0;

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
