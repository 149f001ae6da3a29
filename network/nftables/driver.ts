import { isPodnetError } from "../../core/errors.ts";
import type { Change } from "../change.ts";
import type { Fragment, NetworkFragment, PluggedFragment } from "../desired.ts";
import type { FirewallDriver, FirewallFacts } from "../firewall/driver.ts";
import type { Memory } from "../memory.ts";
import type { OverlayRuled } from "../overlay/desired.ts";
import { networkMark, type Owner, overlayMark, publishedMark } from "../ownership.ts";
import { diffElements, tableConflict } from "./diff.ts";
import { commands, elementText, isEmpty, type TableEdit } from "./edit.ts";
import { type Element, named, networkElements, overlayElements, podElements } from "./element.ts";
import type { RuleTable } from "./rule-table.ts";

export interface NftablesOptions {
  readonly table: RuleTable;
  readonly memory: Memory;
  /** Whether it is the one configured; else it only takes away what it made when it was. */
  readonly configured: boolean;
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
      const own = ({ kind, key }: Owner): boolean => kind === "network" && key === fragment.key;
      return this.compareRemoval(own, signal);
    }
    await this.#options.table.look(signal);
    return this.#compare(networkMark(fragment.key), networkElements(fragment));
  }

  async comparePod(fragment: PluggedFragment, signal: AbortSignal): Promise<Change[]> {
    const owner = publishedMark(fragment);
    const wanted = podElements(fragment);
    await this.#options.table.lookAt(owner, wanted, signal);
    return this.#compare(owner, wanted);
  }

  async compareOverlay(overlay: OverlayRuled, signal: AbortSignal): Promise<Change[]> {
    await this.#options.table.look(signal);
    return this.#compare(overlayMark(overlay.name), overlayElements(overlay));
  }

  async compareRemoval(doomed: (owner: Owner) => boolean, signal: AbortSignal): Promise<Change[]> {
    const { table } = this.#options;
    if (!(await this.#seesTable(signal))) return [];
    const goes = table.elements.owners().filter(doomed);
    // A table that is nobody's goes as a whole.
    if (goes.length === table.elements.owners().length)
      return changes({ base: "delete", remove: [], add: [] });
    const remove: Element[] = [];
    for (const { mark } of goes) {
      await table.lookAt(mark, [], signal);
      remove.push(...table.elements.of(mark));
    }
    return changes({ base: "keep", remove, add: [] });
  }

  fingerprint(): Promise<string> {
    const generation = this.#options.table.generation();
    // Where nothing tells, anything may have changed each time.
    return Promise.resolve(String(generation ?? `unknown ${this.#asked++}`));
  }

  facts(): Promise<FirewallFacts> {
    return Promise.resolve("nftables");
  }

  describeOverlay(overlay: OverlayRuled): readonly string[] {
    return overlayElements(overlay).map(
      (element) => `nftables ${element.set} ${elementText(element)}`,
    );
  }

  describe(fragment: Fragment): readonly string[] {
    const elements =
      fragment.kind === "network" ? networkElements(fragment) : podElements(fragment);
    return elements.map((element) => `nftables ${element.set} ${elementText(named(element))}`);
  }

  describeChange(before: PluggedFragment, after: PluggedFragment): readonly string[] {
    const [had, has] = [podElements(before), podElements(after)];
    const without = (some: readonly Element[], others: readonly Element[]): Element[] => {
      const texts = new Set(others.map((each) => `${each.set} ${elementText(each)}`));
      return some.filter((each) => !texts.has(`${each.set} ${elementText(each)}`)).map(named);
    };
    const edit = { remove: without(had, has), add: without(has, had) };
    return commands({ base: "keep", ...edit }).map((command) => `nft ${command}`);
  }

  #compare(owner: string, wanted: readonly Element[]): Change[] {
    const { elements, base } = this.#options.table;
    if (base === "foreign") throw tableConflict();
    // An empty table is made for nobody.
    if (base !== "keep" && wanted.length === 0) return [];
    const present = (id: string): Element | undefined => elements.get(id);
    const edit = diffElements({ wanted, owned: elements.of(owner), present });
    if (base !== "remake") return changes({ base, ...edit });
    // What others have in the table goes with it, and comes back with the new one.
    const gone = new Set(edit.remove);
    const add = [...elements.all().filter((element) => !gone.has(element)), ...edit.add];
    return changes({ base, remove: [], add });
  }

  /** Whether there is a table of ours. Who is not configured does not mind that nftables cannot be used here. */
  async #seesTable(signal: AbortSignal): Promise<boolean> {
    const { table, configured, memory } = this.#options;
    try {
      await table.lookOnce(signal);
    } catch (error) {
      const minds = configured || memory.madeTable;
      if (minds || !isPodnetError(error, "FIREWALL_FAILED")) throw error;
      return false;
    }
    return table.exists && table.base !== "foreign";
  }
}

const changes = (edit: TableEdit): Change[] =>
  isEmpty(edit) ? [] : [{ kind: "nftables", ...edit }];
