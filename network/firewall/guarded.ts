import type { Change } from "../model/change.ts";
import type { Fragment, NetworkFragment, PluggedFragment } from "../model/desired.ts";
import type { OverlayRuled } from "../model/overlay.ts";
import type { SenderChange } from "../model/overlay-senders.ts";
import type { Memory } from "../kernel/memory.ts";
import { NftablesDriver } from "./nftables/driver.ts";
import {
  bridgeGuardElements,
  givenElements,
  hostGuardElements,
  shareElements,
} from "./nftables/element.ts";
import {
  parseRefusals,
  placeRefusals,
  type Refusal,
  type RefusalKind,
} from "./nftables/refusals.ts";
import type { SetName } from "../model/nftables-sets.ts";
import { changedSenders, senderElements } from "./nftables/senders-table.ts";
import type { RuleTable } from "./nftables/rule-table.ts";
import type { Owner } from "../model/ownership.ts";
import type { FirewallDriver } from "./driver.ts";

/** The hint for a host where a part of the guard is not in force. */
export const guardHint =
  "Install libnftables1 and use a kernel with CONFIG_NF_TABLES_BRIDGE and CONFIG_NFT_REJECT_INET; then start podnetd again";

/** The elements that each table takes from networks, pods and overlays. */
const contents = [
  { ofNetwork: bridgeGuardElements, ofPod: givenElements },
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

const hasSources = ({ sources }: PluggedFragment): boolean => sources !== undefined;

/**
 * The guard: it restricts what guests may send, with tables of our own, written with nftables
 * whichever driver writes the other rules. It has elements for networks, because its rules know
 * ports by their link group, and only for pods that have addresses beyond their networks. Other
 * pods and containers cost it nothing.
 */
export class Guard {
  readonly #tables: readonly RuleTable[];
  readonly #parts: readonly NftablesDriver[];
  readonly #off: boolean;
  readonly #memory: Memory;

  /**
   * `tables` as in `guardTables`. With `off`, the guard only removes what an earlier, enabled guard
   * made.
   */
  constructor(tables: readonly RuleTable[], memory: Memory, off: boolean) {
    this.#tables = tables;
    this.#memory = memory;
    this.#off = off;
    this.#parts = tables.map(
      (table, i) =>
        new NftablesDriver({
          table,
          memory,
          configured: false,
          ...contents[i],
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

  /** Returns no changes, without a look, for pods without sources of their own. */
  async comparePods(fragments: readonly PluggedFragment[], signal: AbortSignal): Promise<Change[]> {
    const some = this.#wanted(fragments);
    const [only] = some;
    if (only === undefined) return [];
    return this.#each(
      (part) =>
        some.length === 1 ? part.comparePod(only, signal) : part.comparePods(some, signal),
      this.#parts.slice(0, 1),
    );
  }

  /** The pods whose sources are not as wanted. */
  async deviating(
    fragments: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<readonly PluggedFragment[]> {
    const some = fragments.filter(hasSources);
    const [part] = this.#parts;
    if (this.#off || some.length === 0 || part === undefined) return [];
    return part.deviating(some, signal);
  }

  async compareRemoval(removed: (owner: Owner) => boolean, signal: AbortSignal): Promise<Change[]> {
    // Most removals are of pods: a table of hosts that podnet did not make is looked for where
    // overlays are removed.
    const name = this.#tables[ofNetworks]?.model.name ?? "";
    const all = this.#memory.madeTable(name) || removed({ kind: "overlay", key: "" });
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

  fingerprint(): string {
    return this.#off ? "" : `${this.#tables[0]?.generation()}`;
  }

  describe(fragment: Fragment): readonly string[] {
    if (this.#off || (fragment.kind === "network" && !fragment.firewall)) return [];
    return this.#parts.slice(0, ofNetworks).flatMap((part) => part.describe(fragment));
  }

  describeOverlay(overlay: OverlayRuled): readonly string[] {
    return this.#off ? [] : (this.#parts[ofNetworks]?.describeOverlay(overlay) ?? []);
  }

  /** Why parts of it are not in force, a line each. */
  get lacking(): readonly string[] {
    return this.#tables.flatMap(({ lacking }) => lacking ?? []);
  }

  /** When the guard is off, no fragment gets elements. */
  #wanted(fragments: readonly PluggedFragment[]): PluggedFragment[] {
    const some = fragments.filter(hasSources);
    return this.#off ? some.map((fragment) => ({ ...fragment, sources: [] })) : some;
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

/** A driver whose networks are guarded as well. */
export const guarded = (driver: FirewallDriver, guard: Guard): FirewallDriver => ({
  compareNetwork: async (fragment, signal) => [
    ...(await guard.compareNetwork(fragment, signal)),
    ...(await driver.compareNetwork(fragment, signal)),
  ],
  comparePod: async (fragment, signal) => [
    ...(await guard.comparePods([fragment], signal)),
    ...(await driver.comparePod(fragment, signal)),
  ],
  deviating: async (fragments, signal) => {
    const found = new Set(await guard.deviating(fragments, signal));
    for (const fragment of await driver.deviating(fragments, signal)) found.add(fragment);
    return fragments.filter((fragment) => found.has(fragment));
  },
  comparePods: async (fragments, signal) => [
    ...(await guard.comparePods(fragments, signal)),
    ...(await driver.comparePods(fragments, signal)),
  ],
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
  describeChange: (before, after) => driver.describeChange(before, after),
});
