import { parseLeaseKey, type Subnets } from "./flannel/key.ts";
import { type LeaseValue, parseLeaseValue } from "./flannel/value.ts";
import { type OwnerId, ownerOf } from "./owner.ts";
import type {
  Committed,
  GrantId,
  LeaseTransaction,
  LeaseWrite,
  Revision,
  StoredKey,
  StoreEvent,
  StoreUpdate,
} from "./store.ts";

/** A key below `subnets` that is a lease, of whatever kind of host. */
export interface Lease {
  readonly kind: "lease";
  readonly key: string;
  readonly subnets: Subnets;
  readonly value: LeaseValue;
  /** The value's text. */
  readonly text: string;
  /** 0n for a reservation, which does not end. */
  readonly grant: GrantId;
  readonly createRevision: Revision;
  readonly modRevision: Revision;
}

/** A key that is not a valid lease: skipped and counted. */
interface Skipped {
  readonly kind: "skipped";
  readonly key: string;
  readonly why: "key" | "value";
  readonly modRevision: Revision;
}

export type Entry = Lease | Skipped;

/** A key that is not as it was. */
export interface EntryChange {
  readonly key: string;
  readonly before: Entry | undefined;
  readonly after: Entry | undefined;
}

/** The queries of a registry. */
export interface Leases {
  /** Up to where the store was followed; undefined before the first snapshot. */
  readonly revision: Revision | undefined;
  get(key: string): Entry | undefined;
  [Symbol.iterator](): Iterator<Entry>;
  /** Leases whose value names the address. */
  at(ip: string): readonly Lease[];
  /** Leases that a podnet host's marked grant holds. */
  of(owner: OwnerId): readonly Lease[];
}

/** Reads a key that the store has. */
export function readEntry(stored: StoredKey): Entry {
  const { key, value, grant, createRevision, modRevision } = stored;
  const subnets = parseLeaseKey(key);
  if (subnets === undefined) return { kind: "skipped", key, why: "key", modRevision };
  const read = parseLeaseValue(value);
  if (read === undefined) return { kind: "skipped", key, why: "value", modRevision };
  const text = value;
  return { kind: "lease", key, subnets, value: read, text, grant, createRevision, modRevision };
}

/**
 * All leases of an overlay that this host knows, from following the store and from its own writes.
 */
export class Registry implements Leases {
  readonly #entries = new Map<string, Entry>();
  readonly #byAddress = new Index<string>();
  readonly #byOwner = new Index<OwnerId>();
  #revision: Revision | undefined;
  #cluster: bigint | undefined;

  get revision(): Revision | undefined {
    return this.#revision;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: string): Entry | undefined {
    return this.#entries.get(key);
  }

  [Symbol.iterator](): Iterator<Entry> {
    return this.#entries.values();
  }

  at(ip: string): readonly Lease[] {
    return this.#leases(this.#byAddress.get(ip));
  }

  of(owner: OwnerId): readonly Lease[] {
    return this.#leases(this.#byOwner.get(owner));
  }

  /** Applies an update of the store, and returns the changes. */
  apply(update: StoreUpdate & { kind: "snapshot" | "changes" }): EntryChange[] {
    this.#revision = update.revision;
    if (update.kind === "changes") return update.events.flatMap((event) => this.#event(event));
    const sameStore = this.#cluster === update.cluster;
    this.#cluster = update.cluster;
    const listed = new Set(update.keys.map(({ key }) => key));
    const gone = [...this.#entries.values()]
      // A key that this host wrote after the snapshot was taken is not gone.
      .filter(
        ({ key, modRevision }) => !listed.has(key) && !(sameStore && modRevision > update.revision),
      )
      .flatMap(({ key }) => this.#put(key, undefined));
    const there = sameStore
      ? update.keys.flatMap((at) => this.#event({ kind: "put", at }))
      : update.keys.flatMap((at) => this.#put(at.key, readEntry(at)));
    return [...gone, ...there];
  }

  /** Applies the result of this host's own transaction, which the store reports later. */
  learn({ compares, puts, deletes }: LeaseTransaction, committed: Committed): EntryChange[] {
    const { revision } = committed;
    // The answer may arrive after following has reported the transaction, and later changes of its
    // keys.
    if (this.#revision !== undefined && revision <= this.#revision) return [];
    const gone = (key: string): EntryChange[] =>
      this.#event({ kind: "delete", key, modRevision: revision });
    if (committed.kind === "done")
      return [
        ...deletes.flatMap(gone),
        ...puts.flatMap(({ write, grant }) =>
          this.#event({ kind: "put", at: this.#written(write, grant, revision) }),
        ),
      ];
    const found = new Set(committed.found.map(({ key }) => key));
    return [
      ...compares.filter(({ key }) => !found.has(key)).flatMap(({ key }) => gone(key)),
      ...committed.found.flatMap((at) => this.#event({ kind: "put", at })),
    ];
  }

  #written(write: LeaseWrite, grant: GrantId, modRevision: Revision): StoredKey {
    const there = this.#entries.get(write.key);
    const createRevision = there?.kind === "lease" ? there.createRevision : modRevision;
    return { ...write, grant, createRevision, modRevision };
  }

  /**
   * Ignores events older than the known revision of a key, because own writes are known before they
   * are reported.
   */
  #event(event: StoreEvent): EntryChange[] {
    const { key, modRevision } = event.kind === "put" ? event.at : event;
    const known = this.#entries.get(key);
    if (known !== undefined && known.modRevision >= modRevision) return [];
    return this.#put(key, event.kind === "put" ? readEntry(event.at) : undefined);
  }

  #put(key: string, after: Entry | undefined): EntryChange[] {
    const before = this.#entries.get(key);
    if (before === undefined && after === undefined) return [];
    if (before?.kind === "lease") this.#index(before, "delete");
    if (after?.kind === "lease") this.#index(after, "add");
    if (after === undefined) this.#entries.delete(key);
    else this.#entries.set(key, after);
    return [{ key, before, after }];
  }

  #index({ key, value, grant }: Lease, change: "add" | "delete"): void {
    if (value.publicIp !== undefined) this.#byAddress[change](value.publicIp, key);
    if (value.publicIp6 !== undefined) this.#byAddress[change](value.publicIp6, key);
    const owner = ownerOf(grant);
    if (owner !== undefined) this.#byOwner[change](owner, key);
  }

  #leases(keys: ReadonlySet<string>): readonly Lease[] {
    return [...keys].map((key) => this.#entries.get(key) as Lease);
  }
}

const nothing: ReadonlySet<string> = new Set();

/** Keys by something they have. */
class Index<By> {
  readonly #keys = new Map<By, Set<string>>();

  get(by: By): ReadonlySet<string> {
    return this.#keys.get(by) ?? nothing;
  }

  add(by: By, key: string): void {
    const keys = this.#keys.get(by);
    if (keys === undefined) this.#keys.set(by, new Set([key]));
    else keys.add(key);
  }

  delete(by: By, key: string): void {
    const keys = this.#keys.get(by);
    keys?.delete(key);
    if (keys?.size === 0) this.#keys.delete(by);
  }
}
