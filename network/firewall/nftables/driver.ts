import type { Ip } from "../../../core/address.ts";
import type { IfName } from "../../../core/names.ts";
import { isPodnetError } from "../../../core/errors.ts";
import type { Change } from "../../model/change.ts";
import type { Fragment, NetworkFragment, PluggedFragment } from "../../model/desired.ts";
import type { FirewallDriver, FirewallFacts } from "../driver.ts";
import type { Memory } from "../../kernel/memory.ts";
import type { OverlayRuled } from "../../model/overlay.ts";
import type { SenderChange } from "../../model/overlay-senders.ts";
import { networkMark, overlayMark, publishedMark } from "../../model/ownership.ts";
import { mainTable } from "./base.ts";
import { diffElements, tableConflict } from "./diff.ts";
import { commands } from "./edit.ts";
import { isEmpty, type NftablesEdit, type PolicyChain } from "../../model/rules.ts";
import { elementText, type Element, elementId } from "../../model/nftables-sets.ts";
import { named, networkElements, overlayElements, podElements } from "./element.ts";
import { chainOf, type MarkedOwner } from "./elements.ts";
import type { RuleTable } from "./rule-table.ts";

export interface NftablesOptions {
  readonly table: RuleTable;
  readonly memory: Memory;
  /**
   * Whether this driver is the configured one. If not, it only removes what it made while it was.
   */
  readonly configured: boolean;
  /** The elements of a network in this table; by default those of the main table. */
  readonly ofNetwork?: (fragment: NetworkFragment) => Element[];
  /** As above, for a pod or container. */
  readonly ofPod?: (fragment: PluggedFragment) => Element[];
  /** The chains that a pod's elements lead to; by default none. */
  readonly chainsOf?: (fragment: PluggedFragment) => readonly PolicyChain[];
  /** Each port of a pod has elements of its own, under its own mark. Default: false. */
  readonly ports?: boolean;
  /** As above, for an overlay. */
  readonly ofOverlay?: (overlay: OverlayRuled) => Element[];
  /** The elements of hosts that may send by their own addresses; by default none. */
  readonly ofSenders?: (change: SenderChange, hosts: readonly Ip[]) => Element[];
}

/** A table of our own, changed by libnftables in this process. */
export class NftablesDriver implements FirewallDriver {
  readonly #options: NftablesOptions;
  #asked = 0;

  constructor(options: NftablesOptions) {
    this.#options = options;
  }

  async compareNetwork(fragment: NetworkFragment, signal: AbortSignal): Promise<Change[]> {
    if (!fragment.firewall) {
      const own = ({ kind, key }: MarkedOwner): boolean =>
        kind === "network" && key === fragment.key;
      return this.compareRemoval(own, signal);
    }
    await this.#options.table.look(signal);
    return this.#compare(networkMark(fragment.key), this.#ofNetwork(fragment));
  }

  async comparePod(fragment: PluggedFragment, signal: AbortSignal): Promise<Change[]> {
    const { table, ports = false } = this.#options;
    const [port, ...others] = ports ? fragment.ports : [];
    const owner = port?.alias ?? publishedMark(fragment);
    if (others.length > 0) await table.look(signal);
    else await table.lookAt(owner, this.#ofPod(fragment), signal);
    // As it is now: a policy may have changed meanwhile, and its chains with it.
    const wanted = this.#ofPod(fragment);
    return this.#compareElements(this.#owned(fragment), wanted, this.#chainsOf(fragment));
  }

  async deviating(
    fragments: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<readonly PluggedFragment[]> {
    const { table } = this.#options;
    await table.look(signal);
    if (table.lacking !== undefined) return [];
    if (table.base !== "keep") return fragments;
    return fragments.filter((fragment) => {
      try {
        const wanted = this.#ofPod(fragment);
        return (
          this.#compareElements(this.#owned(fragment), wanted, this.#chainsOf(fragment)).length > 0
        );
      } catch {
        return true;
      }
    });
  }

  async comparePods(fragments: readonly PluggedFragment[], signal: AbortSignal): Promise<Change[]> {
    const { table } = this.#options;
    await table.look(signal);
    return this.#compareElements(
      fragments.flatMap((fragment) => this.#owned(fragment)),
      fragments.flatMap((fragment) => this.#ofPod(fragment)),
      fragments.flatMap((fragment) => this.#chainsOf(fragment)),
    );
  }

  /** Whether an owner has an element by the name of a link. */
  hasAt(mark: string, link: IfName): boolean {
    return this.#options.table.elements.at(link).some(({ owner }) => owner === mark);
  }

  async compareOverlay(overlay: OverlayRuled, signal: AbortSignal): Promise<Change[]> {
    await this.#options.table.look(signal);
    return this.#compare(overlayMark(overlay.name), this.#ofOverlay(overlay));
  }

  async compareSenders(change: SenderChange, signal: AbortSignal): Promise<Change[]> {
    const { table, ofSenders = () => [] } = this.#options;
    const wanted = ofSenders(change, change.added);
    const removed = ofSenders(change, change.removed);
    if (wanted.length + removed.length === 0) return [];
    const owner = overlayMark(change.name);
    await table.lookAt(owner, [...wanted, ...removed], signal);
    const owned = removed.filter((one) => table.elements.get(elementId(one))?.owner === owner);
    return this.#compareElements(owned, wanted);
  }

  /**
   * The changes that give the table these elements and chains, and no others of podnet's. Throws as
   * `compareNetwork`.
   */
  async compareWhole(
    wanted: readonly Element[],
    chains: readonly PolicyChain[],
    signal: AbortSignal,
  ): Promise<Change[]> {
    if (wanted.length === 0) return this.compareRemoval(() => true, signal);
    const { table } = this.#options;
    await table.look(signal);
    const owned = table.elements.owners().flatMap(({ mark }) => table.elements.of(mark));
    return this.#compareElements(owned, wanted, chains);
  }

  async compareRemoval(
    removed: (owner: MarkedOwner) => boolean,
    signal: AbortSignal,
  ): Promise<Change[]> {
    const { table } = this.#options;
    const isThere = await this.#seesTable(signal);
    const goes = table.elements.owners().filter(removed);
    if (!isThere) {
      table.forget(goes.map(({ mark }) => mark));
      return [];
    }
    // A table without any other owner is deleted as a whole.
    if (goes.length === table.elements.owners().length)
      return this.#changes({ base: "delete", remove: [], add: [] });
    const remove: Element[] = [];
    for (const { mark } of goes) {
      await table.lookAt(mark, [], signal);
      remove.push(...table.elements.of(mark));
    }
    return this.#changes({ base: "keep", remove, add: [] });
  }

  fingerprint(): Promise<string> {
    const generation = this.#options.table.generation();
    // Without a transaction number, each look may find a change.
    return Promise.resolve(String(generation ?? `unknown ${this.#asked++}`));
  }

  facts(): Promise<FirewallFacts> {
    return Promise.resolve("nftables");
  }

  describeOverlay(overlay: OverlayRuled): readonly string[] {
    return this.#ofOverlay(overlay).map(
      (element) => `nftables ${element.set} ${elementText(element)}`,
    );
  }

  describe(fragment: Fragment): readonly string[] {
    const elements =
      fragment.kind === "network" ? this.#ofNetwork(fragment) : this.#ofPod(fragment);
    const chains = fragment.kind === "network" ? [] : this.#chainsOf(fragment);
    return [
      ...chains.flatMap(({ name, rules }) => rules.map((rule) => `nftables ${name} ${rule}`)),
      ...elements.map((element) => `nftables ${element.set} ${elementText(named(element))}`),
    ];
  }

  describeChange(before: PluggedFragment, after: PluggedFragment): readonly string[] {
    const [had, has] = [this.#ofPod(before), this.#ofPod(after)];
    const without = (some: readonly Element[], others: readonly Element[]): Element[] => {
      const texts = new Set(others.map((each) => `${each.set} ${elementText(each)}`));
      return some.filter((each) => !texts.has(`${each.set} ${elementText(each)}`)).map(named);
    };
    const edit = { remove: without(had, has), add: without(has, had) };
    const { model } = this.#options.table;
    return commands({ base: "keep", ...edit }, model).map((command) => `nft ${command}`);
  }

  #compare(
    owner: string,
    wanted: readonly Element[],
    chains: readonly PolicyChain[] = [],
  ): Change[] {
    return this.#compareElements(this.#options.table.elements.of(owner), wanted, chains);
  }

  #compareElements(
    owned: readonly Element[],
    wanted: readonly Element[],
    chains: readonly PolicyChain[] = [],
  ): Change[] {
    const { elements, base, lacking, model } = this.#options.table;
    if (lacking !== undefined) return [];
    if (base === "foreign") throw tableConflict(model);
    // An owner without wanted elements leaves sets, chains and rules as they are: owners that have
    // some repair them. Its own are still removed; otherwise a later repair would keep them. A
    // damaged table in which no owner has any would never be repaired, and may close what it should
    // not: it is deleted.
    if (base !== "keep" && wanted.length === 0) {
      const [remove, gone] = [[...owned], new Set(owned.map(elementId))];
      const isUsed = elements.all().some((element) => !gone.has(elementId(element)));
      const isDeleted = this.#options.table.exists && !isUsed;
      return this.#changes(
        isDeleted ? { base: "delete", remove: [], add: [] } : { base: "keep", remove, add: [] },
      );
    }
    const present = (id: string): Element | undefined => elements.get(id);
    const edit = diffElements({ wanted, owned, present, table: model.name });
    const led = new Set(wanted.map(chainOf));
    const needed = chains.filter(({ name }) => led.has(name));
    const fill = this.#missing(needed, base);
    const isAnew = base === "remake" || (base === "make" && !this.#options.table.exists);
    if (!isAnew) return this.#changes({ base, ...edit, ...fill });
    // Elements of other owners are deleted with the table and come back with the new one.
    const gone = new Set([...edit.remove, ...edit.add].map(elementId));
    const stays = (element: Element): boolean =>
      !gone.has(elementId(element)) && (model.owns === undefined || chainOf(element) === undefined);
    const add = [...elements.all().filter(stays), ...edit.add];
    return this.#changes({ base, remove: [], add, ...fill });
  }

  /** The chains that have to be filled before elements lead to them. */
  #missing(chains: readonly PolicyChain[], base: NftablesEdit["base"]): Pick<NftablesEdit, "fill"> {
    const { table } = this.#options;
    const missing = chains.filter(({ name }) => base !== "keep" || !table.hasChain(name));
    const fill = [...new Map(missing.map((chain) => [chain.name, chain])).values()];
    return fill.length === 0 ? {} : { fill };
  }

  /** The chains to which no element leads any more after an edit. */
  #unused({ base, remove, add }: NftablesEdit): Pick<NftablesEdit, "drop"> {
    const { elements } = this.#options.table;
    const drop = new Set(remove.flatMap((element) => chainOf(element) ?? []));
    if (base === "delete" || drop.size === 0) return {};
    const removed = new Set(remove.map(elementId));
    for (const element of [...add, ...elements.all().filter((one) => !removed.has(elementId(one)))])
      drop.delete(chainOf(element) ?? "");
    return drop.size === 0 ? {} : { drop: [...drop] };
  }

  #chainsOf(fragment: PluggedFragment): readonly PolicyChain[] {
    return this.#options.chainsOf?.(fragment) ?? [];
  }

  /**
   * All that a pod has. Of ports also what bears their names: an earlier port of that name may have
   * left it.
   */
  #owned(fragment: PluggedFragment): Element[] {
    const { ports = false, table } = this.#options;
    const { elements } = table;
    if (!ports) return elements.of(publishedMark(fragment));
    const found = fragment.ports.flatMap(({ tap, alias }) => [
      ...elements.of(alias),
      ...elements.at(tap),
    ]);
    return [...new Map(found.map((element) => [elementId(element), element])).values()];
  }

  #ofNetwork(fragment: NetworkFragment): Element[] {
    const { ofNetwork = networkElements } = this.#options;
    return ofNetwork(fragment);
  }

  #ofOverlay(overlay: OverlayRuled): Element[] {
    const { ofOverlay = overlayElements } = this.#options;
    return ofOverlay(overlay);
  }

  #ofPod(fragment: PluggedFragment): Element[] {
    const { ofPod = podElements } = this.#options;
    return ofPod(fragment);
  }

  #changes(edit: NftablesEdit): Change[] {
    const { model } = this.#options.table;
    const named = model === mainTable ? edit : { ...edit, table: model.name };
    return isEmpty(edit) ? [] : [{ kind: "nftables", ...named, ...this.#unused(edit) }];
  }

  /**
   * Whether a table of ours exists. A driver that is not configured ignores that nftables cannot be
   * used here.
   */
  async #seesTable(signal: AbortSignal): Promise<boolean> {
    const { table, configured, memory } = this.#options;
    try {
      await table.lookOnce(signal);
    } catch (error) {
      const minds = configured || memory.madeTable(table.model.name);
      if (minds || !isPodnetError(error, "FIREWALL_FAILED")) throw error;
      return false;
    }
    return table.exists && table.base !== "foreign";
  }
}
