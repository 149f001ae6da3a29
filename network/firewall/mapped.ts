import type { Change } from "../model/change.ts";
import type { Fragment, NetworkFragment, PluggedFragment } from "../model/desired.ts";
import type { OverlayRuled } from "../model/overlay.ts";
import { isPlugged, type Owner, publishedMark } from "../model/ownership.ts";
import type { Memory } from "../kernel/memory.ts";
import type { FirewallDriver, FirewallFacts } from "./driver.ts";
import { ownersOf } from "./iptables/diff-owners.ts";
import type { IptablesDriver } from "./iptables/driver.ts";
import { NftablesDriver } from "./nftables/driver.ts";
import { publishingElements } from "./nftables/published-table.ts";
import type { RuleTable } from "./nftables/rule-table.ts";

/** The driver of `publishedTable`. */
export const mapDriver = (table: RuleTable, memory: Memory): NftablesDriver =>
  new NftablesDriver({
    table,
    memory,
    configured: false,
    ofNetwork: publishingElements,
    ofOverlay: () => [],
  });

interface Mapping {
  readonly chains: IptablesDriver;
  /** Of `publishedTable`. */
  readonly table: RuleTable;
  readonly memory: Memory;
  /** No rules are made (`disable_iptables`). */
  readonly off: boolean;
}

/**
 * The driver iptables, with what pods publish in a table of nftables: a port costs one transaction
 * of a few elements, and no program of iptables. Where the host cannot have that table, ports stand
 * in iptables' chains, as they did in earlier versions of podnet.
 */
export class MappedDriver implements FirewallDriver {
  readonly #of: Mapping;
  readonly #map: NftablesDriver;
  /** Whether rules of ports in iptables' chains were looked for: from then on they are drift. */
  #swept = false;

  constructor(mapping: Mapping) {
    this.#of = mapping;
    this.#map = mapDriver(mapping.table, mapping.memory);
  }

  async compareNetwork(fragment: NetworkFragment, signal: AbortSignal): Promise<Change[]> {
    return [
      ...(this.#isUsed ? await this.#map.compareNetwork(fragment, signal) : []),
      ...(await this.#of.chains.compareNetwork(fragment, signal)),
    ];
  }

  comparePod(fragment: PluggedFragment, signal: AbortSignal): Promise<Change[]> {
    return this.comparePods([fragment], signal);
  }

  async comparePods(fragments: readonly PluggedFragment[], signal: AbortSignal): Promise<Change[]> {
    const { chains, off } = this.#of;
    if (off) return this.compareRemoval(ownersOf(fragments), signal);
    const [only, ...others] = fragments;
    if (only === undefined) return [];
    const mapped =
      others.length === 0
        ? await this.#map.comparePod(only, signal)
        : await this.#map.comparePods(fragments, signal);
    if (!this.#isMapped) return chains.comparePods(fragments, signal);
    // Not at a start: what networks have in the chains might not accept what the table marks yet.
    const isLeft = this.#swept && fragments.some((each) => chains.hasSeen(publishedMark(each)));
    return isLeft
      ? [...mapped, ...(await chains.compareRemoval(ownersOf(fragments), signal))]
      : mapped;
  }

  async deviating(
    fragments: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<readonly PluggedFragment[]> {
    const { chains, off } = this.#of;
    if (off) return [];
    const found = new Set(await this.#map.deviating(fragments, signal));
    if (!this.#isMapped) return chains.deviating(fragments, signal);
    if (this.#swept)
      for (const fragment of await chains.ruled(fragments, signal)) found.add(fragment);
    return fragments.filter((fragment) => found.has(fragment));
  }

  compareOverlay(overlay: OverlayRuled, signal: AbortSignal): Promise<Change[]> {
    return this.#of.chains.compareOverlay(overlay, signal);
  }

  compareSenders(): Promise<Change[]> {
    return this.#of.chains.compareSenders();
  }

  async compareRemoval(removed: (owner: Owner) => boolean, signal: AbortSignal): Promise<Change[]> {
    const { chains } = this.#of;
    const mapped = this.#isUsed ? await this.#map.compareRemoval(removed, signal) : [];
    return chains.mayHave(removed)
      ? [...mapped, ...(await chains.compareRemoval(removed, signal))]
      : mapped;
  }

  /**
   * The changes that remove rules of ports from iptables' chains, once all that run have elements.
   */
  async compareFormer(signal: AbortSignal): Promise<Change[]> {
    const { chains, off } = this.#of;
    if (off || !this.#isMapped) return [];
    this.#swept = true;
    return chains.mayHave(isPlugged) ? chains.compareRemoval(isPlugged, signal) : [];
  }

  async fingerprint(signal: AbortSignal): Promise<string> {
    const { chains, off } = this.#of;
    const rules = await chains.fingerprint(signal);
    return off ? rules : [rules, await this.#map.fingerprint()].join("\n");
  }

  facts(signal: AbortSignal): Promise<FirewallFacts> {
    return this.#of.chains.facts(signal);
  }

  describeOverlay(overlay: OverlayRuled): readonly string[] {
    return this.#of.chains.describeOverlay(overlay);
  }

  describe(fragment: Fragment): readonly string[] {
    const { chains, off } = this.#of;
    const inMap = off || !this.#isMapped ? [] : this.#map.describe(fragment);
    if (fragment.kind === "network") return [...inMap, ...chains.describe(fragment)];
    return this.#isMapped ? inMap : chains.describe(fragment);
  }

  describeChange(before: PluggedFragment, after: PluggedFragment): readonly string[] {
    const { chains, off } = this.#of;
    if (off) return [];
    return (this.#isMapped ? this.#map : chains).describeChange(before, after);
  }

  /** Whether this host can have the table, as far as a failure has not shown otherwise. */
  get #isMapped(): boolean {
    return this.#of.table.lacking === undefined;
  }

  /** When switched off, podnet looks for the table only if its records name it. */
  get #isUsed(): boolean {
    const { off, memory, table } = this.#of;
    return !off || memory.madeTable(table.model.name);
  }
}
