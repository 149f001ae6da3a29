import type { Family } from "../../core/address.ts";
import type { Setting } from "../model/change.ts";
import type { IfName } from "../../core/names.ts";
import { type TableName, type Variant, variants, mainTableName } from "../model/rules.ts";

type Rules6 = "suspected" | "known";

/**
 * The changes that podnet made on the host and that bear no mark, so that `down` can revert them.
 * Plain JSON; the daemon stores it in its meta table before the change is made, and passes it back
 * at the next start.
 */
export interface Remembered {
  /** Boot and network namespace it is true of; under any other it is void. */
  readonly host: string;
  /** The value of net.ipv4.ip_forward before we set it. */
  readonly ipForward?: string;
  /** Settings that the kernel changes along with it, and would not put back as they were. */
  readonly besideForward?: readonly Setting[];
  /** The earlier value of net.ipv6.conf.all.forwarding. */
  readonly ipv6Forward?: string;
  readonly besideIpv6Forward?: readonly Setting[];
  /** Chains we made, as `nft filter HYPER`. */
  readonly chains: readonly string[];
  /** Chains of ip6tables; absent while it was never used. */
  readonly chains6?: readonly string[];
  /**
   * Whether ip6tables may have rules of an earlier podnetd whose records were lost: `suspected`
   * until it was seen without, `known` when `chains6` has all there are. Absent until it is judged.
   */
  readonly rules6?: Rules6;
  /** The table of nftables is ours, even when it is empty. */
  readonly table?: true;
  /** As above, for the guard's tables. */
  readonly guardTables?: readonly string[];
  /** Bridges of others that were down until we adopted them. */
  readonly raised: readonly IfName[];
  /** Bridges of others, by index, that keep the MAC they had when we adopted them. */
  readonly pinned?: readonly number[];
}

const forwardKeys = {
  4: { was: "ipForward", alongside: "besideForward" },
  6: { was: "ipv6Forward", alongside: "besideIpv6Forward" },
} as const;

/** Holds the recorded changes, and passes every update of them to the daemon's store. */
export class Memory {
  #value: Remembered;
  readonly #store: (value: Remembered) => void;

  constructor(host: string, initial?: Remembered, store: (value: Remembered) => void = () => {}) {
    this.#value = initial?.host === host ? initial : { host, chains: [], raised: [] };
    this.#store = store;
  }

  get value(): Remembered {
    return this.#value;
  }

  /**
   * The forwarding setting of a family before podnet set it; undefined if podnet did not set it.
   */
  forward(family: Family): string | undefined {
    return this.#value[forwardKeys[family].was];
  }

  alongForward(family: Family): readonly Setting[] {
    return this.#value[forwardKeys[family].alongside] ?? [];
  }

  rememberForward(family: Family, was: string, settings: readonly Setting[]): void {
    const { was: key, alongside } = forwardKeys[family];
    if (this.forward(family) === undefined)
      this.#set({ ...this.#value, [key]: was, [alongside]: settings });
  }

  forgetForward(family: Family): void {
    const { was, alongside } = forwardKeys[family];
    const { [was]: known, [alongside]: _settings, ...rest } = this.#value;
    if (known !== undefined) this.#set(rest);
  }

  rememberRaised(bridge: IfName): void {
    this.#set({ ...this.#value, raised: [...new Set([...this.#value.raised, bridge])] });
  }

  forgetRaised(bridge: IfName): void {
    this.#set({ ...this.#value, raised: this.#value.raised.filter((name) => name !== bridge) });
  }

  hasPinned(bridge: number): boolean {
    return this.#value.pinned?.includes(bridge) === true;
  }

  rememberPinned(bridge: number): void {
    if (!this.hasPinned(bridge))
      this.#set({ ...this.#value, pinned: [...(this.#value.pinned ?? []), bridge] });
  }

  /** Whether a table of nftables is ours, even when it is empty. */
  madeTable(name: string): boolean {
    if (name === mainTableName) return this.#value.table === true;
    return this.#value.guardTables?.includes(name) === true;
  }

  rememberTable(name: string): void {
    if (name === mainTableName) this.#set({ ...this.#value, table: true });
    else if (!this.madeTable(name))
      this.#set({ ...this.#value, guardTables: [...(this.#value.guardTables ?? []), name] });
  }

  forgetTable(name: string): void {
    const { table: main, guardTables = [], ...rest } = this.#value;
    const left = guardTables.filter((each) => each !== name);
    this.#set({
      ...rest,
      ...(main === undefined || name === mainTableName ? {} : { table: main }),
      ...(left.length === 0 ? {} : { guardTables: left }),
    });
  }

  /** What the records are worth about rules of ip6tables; undefined until it is judged. */
  get rules6(): Rules6 | undefined {
    return this.#value.rules6;
  }

  judgeRules6(rules6: Rules6): void {
    this.#set({ ...this.#value, rules6 });
  }

  /** The records about the chains of one family. */
  chains(family: Family): ChainMemory {
    const key = family === 4 ? "chains" : "chains6";
    return new ChainMemory(
      () => this.#value[key] ?? [],
      (chains) => this.#set({ ...this.#value, [key]: chains }),
    );
  }

  #set(value: Remembered): void {
    if (JSON.stringify(value) === JSON.stringify(this.#value)) return;
    this.#store(value);
    this.#value = value;
  }
}

/** The chains of iptables, or of ip6tables, that we made. */
export class ChainMemory {
  readonly #get: () => readonly string[];
  readonly #set: (chains: readonly string[]) => void;

  constructor(get: () => readonly string[], set: (chains: readonly string[]) => void) {
    this.#get = get;
    this.#set = set;
  }

  /** Whether there are any, as far as is remembered. */
  get any(): boolean {
    return this.#get().length > 0;
  }

  made(variant: Variant, table: TableName, chain: string): boolean {
    return this.#get().includes(`${variant} ${table} ${chain}`);
  }

  remember(variant: Variant, table: TableName, chain: string): void {
    this.#set([...new Set([...this.#get(), `${variant} ${table} ${chain}`])]);
  }

  forget(variant: Variant, table: TableName, chain: string): void {
    const gone = `${variant} ${table} ${chain}`;
    if (this.made(variant, table, chain)) this.#set(this.#get().filter((name) => name !== gone));
  }

  /** The variant our chains were made in, when it was only one. */
  variant(): Variant | undefined {
    const used = variants.filter((variant) =>
      this.#get().some((chain) => chain.startsWith(`${variant} `)),
    );
    return used.length === 1 ? used[0] : undefined;
  }

  /** Names of all chains we made in a variant. */
  names(variant: Variant): string[] {
    return this.#get()
      .filter((chain) => chain.startsWith(`${variant} `))
      .map((chain) => chain.slice(chain.lastIndexOf(" ") + 1));
  }
}
