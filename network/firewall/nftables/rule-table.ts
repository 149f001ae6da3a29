import { throwIfAborted } from "../../../core/aborting.ts";
import { isPodnetError, type PodnetError } from "../../../core/errors.ts";
import type { Nftables } from "../../../linux/nftables/libnftables.ts";
import type { GenerationCounter } from "../../../linux/nftables/nftables-generation.ts";
import type { Memory } from "../../kernel/memory.ts";
import { mainTable, type TableModel } from "./base.ts";
import { diffBase, isOurs, wholeChains } from "./diff.ts";
import { commands } from "./edit.ts";
import { elementChanges } from "./element-changes.ts";
import type { NftablesEdit } from "../../model/rules.ts";
import { type Element, elementId, type SetName } from "../../model/nftables-sets.ts";
import { type Listing, parseElements, parseListing } from "./listing.ts";
import { chainOf, Elements } from "./elements.ts";
import type { NftablesSource } from "../../kernel/kernel.ts";

/**
 * nf_tables with the number of its transactions, by which podnet notices changes of other programs.
 */
export class Ledger {
  readonly #source: NftablesSource;
  #nftables: Nftables | undefined;
  #counter: GenerationCounter | undefined;
  #epoch = 0;
  #last: number | undefined;

  constructor(source: NftablesSource) {
    this.#source = source;
  }

  /** Counts the changes of other programs. */
  get epoch(): number {
    return this.#epoch;
  }

  /** The transactions there had been when they were last counted. */
  get last(): number | undefined {
    return this.#last;
  }

  open(): Nftables {
    this.#nftables ??= this.#source.open();
    return this.#nftables;
  }

  generation(): number | undefined {
    this.#counter ??= this.#source.openCounter();
    return this.#counter.read();
  }

  /** Notices whether another program has changed anything. */
  count(): void {
    const generation = this.generation();
    if (generation === undefined || generation !== this.#last) this.#epoch++;
    this.#last = generation;
  }

  /**
   * Records that podnet committed one transaction after this number. If the kernel counted no other
   * one, no other program has changed anything.
   */
  committed(before: number | undefined): void {
    this.#last = this.generation();
    // (It counts modulo 2^32.)
    const alone = before !== undefined && this.#last === (before + 1) % 2 ** 32;
    if (!alone) this.#epoch++;
  }

  close(): void {
    this.#nftables?.close();
    this.#nftables = undefined;
    this.#counter?.close();
    this.#counter = undefined;
  }
}

/** Elements asked for one by one at most: from there on the whole table is listed. */
const mostAsked = 256;
/** In one command. libnftables 1.0.6 crashes with more than 200. */
const mostAtOnce = 64;

/**
 * Our table as last seen, updated with our own changes. The number of nf_tables transactions shows
 * whether another program has changed anything since; then the elements in question are looked at
 * again, one by one. The whole table is listed once at first, and for networks after another
 * program changed rules.
 */
export class RuleTable {
  readonly #memory: Memory;
  #model: TableModel;
  readonly #ledger: Ledger;
  #lacking: string | undefined;
  #reduced: string | undefined;
  /** The epoch the whole table was seen in. */
  #seen: number | undefined;
  /** The epochs owners were looked at in. */
  readonly #lookedAt = new Map<string, number>();
  #exists = false;
  #base: NftablesEdit["base"] | "foreign" = "make";
  readonly #elements = new Elements();
  /** Chains that elements lead to, and that have all of their rules. */
  readonly #chains = new Set<string>();
  /** Texts of our rules, as libnftables lists them. */
  readonly #rules = new Map<string, string>();

  /**
   * Tables that are changed concurrently share the ledger of their source, so that a commit to one
   * does not count as a foreign change to another.
   */
  constructor(source: NftablesSource | Ledger, memory: Memory, model: TableModel = mainTable) {
    this.#ledger = source instanceof Ledger ? source : new Ledger(source);
    this.#memory = memory;
    this.#model = model;
  }

  get model(): TableModel {
    return this.#model;
  }

  /**
   * Why this host cannot have an optional table, in the words of nft; undefined until a failure
   * shows it.
   */
  get lacking(): string | undefined {
    return this.#lacking;
  }

  /** Why this host has a part of a table only, as above. */
  get reduced(): string | undefined {
    return this.#reduced;
  }

  get elements(): Elements {
    return this.#elements;
  }

  /**
   * The change that table, sets, chains and rules need; `foreign` if a table of that name exists
   * and is not ours.
   */
  get base(): NftablesEdit["base"] | "foreign" {
    return this.#base;
  }

  /** Whether there is a chain of this name that elements may lead to, with all of its rules. */
  hasChain(name: string): boolean {
    return this.#chains.has(name);
  }

  /** Whether there is a table, as far as was seen. */
  get exists(): boolean {
    return this.#exists;
  }

  /**
   * Lists the whole table, unless nothing has changed since the last listing. Throws
   * `FIREWALL_FAILED`.
   */
  async look(signal: AbortSignal): Promise<void> {
    if (this.#lacking !== undefined) return;
    this.#ledger.count();
    if (this.#seen === this.#ledger.epoch) return;
    throwIfAborted(signal, "A look at nftables");
    const epoch = this.#ledger.epoch;
    const listing = await this.#list();
    if (this.#lacking !== undefined) return;
    // Another program has deleted the table: whoever makes it again restores its elements.
    const isLost = listing === undefined && this.#exists && this.#model.restored === true;
    if (listing !== undefined || !isLost)
      this.#elements.replace([...(listing?.sets.values() ?? [])].flatMap((set) => set.elements));
    this.#exists = listing !== undefined;
    this.#base = this.#judge(listing);
    this.#chains.clear();
    for (const name of wholeChains(listing, this.#rules, this.#model)) this.#chains.add(name);
    if (this.#base === "keep") this.#learn(listing);
    this.#seen = epoch;
    this.#lookedAt.clear();
  }

  /** Sees the whole table unless it was seen before. Throws `FIREWALL_FAILED`. */
  async lookOnce(signal: AbortSignal): Promise<void> {
    if (this.#seen === undefined) await this.look(signal);
  }

  /**
   * Looks at the elements of an owner, and at elements that conflict with the wanted ones. Throws
   * `FIREWALL_FAILED`.
   */
  async lookAt(owner: string, wanted: readonly Element[], signal: AbortSignal): Promise<void> {
    this.#ledger.count();
    if (this.#seen === undefined) return this.look(signal);
    if (this.#seen === this.#ledger.epoch || this.#lookedAt.get(owner) === this.#ledger.epoch)
      return;
    const asked = new Map(
      [...wanted, ...this.#elements.of(owner)].map((element) => [elementId(element), element]),
    );
    if (asked.size > mostAsked) return this.look(signal);
    const epoch = this.#ledger.epoch;
    const found = await this.#ask([...asked.values()]);
    for (const element of asked.values()) this.#elements.delete(element);
    for (const element of found) this.#elements.set(element);
    if (this.#model.owns !== undefined) await this.#lookAtChains(wanted);
    this.#lookedAt.set(owner, epoch);
  }

  /** Looks at the chains that elements lead to. */
  async #lookAtChains(elements: readonly Element[]): Promise<void> {
    for (const name of new Set(elements.flatMap((element) => chainOf(element) ?? []))) {
      const listing = await this.#list(`list chain ${this.#model.name} ${name}`);
      if (wholeChains(listing, this.#rules, this.#model).includes(name)) this.#chains.add(name);
      else this.#chains.delete(name);
    }
  }

  /**
   * Commits an edit that was computed from the last look. After a failure the whole table is looked
   * at again.
   */
  async commit(edit: NftablesEdit): Promise<void> {
    if (edit.base === "make" || edit.base === "remake")
      this.#memory.rememberTable(this.#model.name);
    // As the look has counted: what another program has changed since then shows afterwards.
    const before = this.#ledger.last;
    try {
      await this.#send(edit);
    } catch (error) {
      this.#seen = undefined;
      if (!this.#doesWithout(error, edit.base)) throw error;
      this.#memory.forgetTable(this.#model.name);
      if (this.#model.optional?.replaced === true) throw error;
      return;
    }
    if (edit.base === "delete" || edit.base === "remake") {
      this.#elements.replace([]);
      this.#chains.clear();
    } else for (const element of edit.remove) this.#elements.delete(element);
    for (const { name } of edit.fill ?? []) this.#chains.add(name);
    for (const name of edit.drop ?? []) this.#chains.delete(name);
    for (const element of edit.add) this.#elements.set(element);
    if (edit.base === "delete") this.#memory.forgetTable(this.#model.name);
    this.#exists = edit.base !== "delete";
    if (edit.base !== "keep") this.#base = edit.base === "delete" ? "make" : "keep";
    this.#ledger.committed(before);
  }

  /**
   * Elements alone are changed without libnftables. A table that this kernel cannot have whole is
   * made as far as it can.
   */
  async #send(edit: NftablesEdit): Promise<void> {
    const nftables = this.#ledger.open();
    const changes = elementChanges(edit, this.#model);
    if (changes !== undefined) return nftables.change(nameOf(edit), this.#model.name, changes);
    const send = (model: TableModel): Promise<void> =>
      nftables.commit(nameOf(edit), commands(edit, model).join("\n"));
    const { without } = this.#model;
    try {
      await send(this.#model);
    } catch (error) {
      const made = edit.base === "make" || edit.base === "remake";
      if (without === undefined || !made || !isPodnetError(error)) throw error;
      if (!isUnsupported(error) && !isAbsent(error)) throw error;
      await send(without.table);
      this.#model = without.table;
      this.#reduced = `${without.does} (${error.message})`;
    }
  }

  /** Restores none of these owners' elements. */
  forget(owners: readonly string[]): void {
    for (const owner of owners)
      for (const element of this.#elements.of(owner)) this.#elements.delete(element);
  }

  /**
   * What the kernel has counted in a set of the table, as nft lists it; undefined without the
   * table. Costs nothing for elements of other sets. Throws `FIREWALL_FAILED`.
   */
  async counted(set: SetName): Promise<string | undefined> {
    if (this.#lacking !== undefined || !this.#exists) return undefined;
    try {
      return await this.#ledger.open().list("list set", `list set ${this.#model.name} ${set}`);
    } catch (error) {
      if (isAbsent(error)) return undefined;
      throw error;
    }
  }

  /** Forgets what was counted by these keys, as they were listed. Throws `FIREWALL_FAILED`. */
  async discount(set: SetName, keys: readonly string[]): Promise<void> {
    this.#ledger.count();
    const before = this.#ledger.last;
    const list = keys.join(", ");
    const command = `delete element ${this.#model.name} ${set} { ${list} }`;
    await this.#ledger.open().commit("forget counters", command);
    this.#ledger.committed(before);
  }

  close(): void {
    this.#ledger.close();
  }

  /**
   * The number of transactions of all programs; undefined if the kernel does not report it. Throws
   * `SYSCALL_FAILED`.
   */
  generation(): number | undefined {
    return this.#ledger.generation();
  }

  async #list(command = `list table ${this.#model.name}`): Promise<Listing | undefined> {
    const [name = ""] = /^list \w+/.exec(command) ?? [];
    try {
      return parseListing(await this.#ledger.open().list(name, command));
    } catch (error) {
      if (isAbsent(error) || this.#doesWithout(error)) return undefined;
      throw error;
    }
  }

  #judge(listing: Listing | undefined): NftablesEdit["base"] | "foreign" {
    if (listing !== undefined && !isOurs(listing)) {
      const empty = listing.sets.size === 0 && listing.chains.size === 0;
      if (!empty || !this.#memory.madeTable(this.#model.name)) return "foreign";
    }
    return diffBase(listing, this.#rules, this.#model);
  }

  /** Whether an optional table cannot be had here, which is noted. */
  #doesWithout(error: unknown, base: NftablesEdit["base"] = "keep"): boolean {
    if (this.#model.optional === undefined || !isPodnetError(error, "FIREWALL_FAILED"))
      return false;
    // A family or a hook is not supported; an expression that the kernel lacks is no such file.
    const made = base === "make" || base === "remake";
    const unsupported = isUnsupported(error) || (made && isAbsent(error));
    if (!unsupported && error.details["errno"] !== "ENOENT") return false;
    this.#lacking = `${this.#model.optional.does} (${error.message})`;
    return true;
  }

  /** Records how nft lists our rules while no other program has changed them. */
  #learn(listing: Listing | undefined): void {
    for (const chain of listing?.chains.values() ?? [])
      for (const { comment, text } of chain.rules)
        if (comment !== undefined) this.#rules.set(comment, text);
  }

  async #ask(elements: readonly Element[]): Promise<Element[]> {
    const bySet = Map.groupBy(elements, ({ set }) => set);
    const found: Element[] = [];
    for (const [set, all] of bySet)
      for (let at = 0; at < all.length; at += mostAtOnce)
        found.push(...(await this.#askFor(set, all.slice(at, at + mostAtOnce))));
    return found;
  }

  /** nft reports no element of several if one of them is missing. */
  async #askFor(set: SetName, some: readonly Element[]): Promise<Element[]> {
    const keys = some.map(({ key }) => key).join(", ");
    try {
      const said = await this.#ledger
        .open()
        .get("get element", `get element ${this.#model.name} ${set} { ${keys} }`);
      return parseElements(said, set);
    } catch (error) {
      if (!isAbsent(error)) throw error;
    }
    if (some.length === 1) return [];
    const half = some.length >> 1;
    return [
      ...(await this.#askFor(set, some.slice(0, half))),
      ...(await this.#askFor(set, some.slice(half))),
    ];
  }
}

const isUnsupported = (error: PodnetError): boolean =>
  /not supported/i.test(String(error.details["nft"] ?? ""));

const isAbsent = (error: unknown): boolean =>
  isPodnetError(error, "FIREWALL_FAILED") &&
  String(error.details["nft"] ?? "").includes("No such file or directory");

/** The name of a transaction for failpoints. */
function nameOf({ base, add }: NftablesEdit): string {
  if (base !== "keep") return `${base} table`;
  return add.length > 0 ? "add elements" : "remove elements";
}
