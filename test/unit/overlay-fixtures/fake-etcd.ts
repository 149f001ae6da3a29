import { etcdError } from "../../../etcd/errors.ts";
import type {
  Committed,
  GrantId,
  LeaseTransaction,
  StoredKey,
  StoreEvent,
  StoreUpdate,
} from "../../../overlay/store.ts";

interface Grant {
  readonly seconds: number;
  endsAt: number;
}

/** An etcd as its documentation has it, in virtual time: every call is done at once and whole. */
export class FakeEtcd {
  readonly #now: () => number;
  readonly #keys = new Map<string, StoredKey>();
  readonly #grants = new Map<GrantId, Grant>();
  /** Events by revision, and what there was after each. */
  readonly #history: { revision: bigint; events: StoreEvent[] }[] = [];
  readonly #states = new Map<bigint, ReadonlyMap<string, StoredKey>>();
  #revision = 1n;
  #compacted = 0n;
  #nextGrant = 7n;
  /** It has no space left: every call fails at once. */
  refusing = false;
  /** Told of each change. */
  onChange: () => void = () => {};
  /** Told of a grant that has run out, before its keys go. */
  onExpire: (id: GrantId, keys: readonly string[]) => void = () => {};

  constructor(now: () => number) {
    this.#now = now;
    this.#states.set(1n, new Map());
  }

  get revision(): bigint {
    return this.#revision;
  }

  get keys(): ReadonlyMap<string, StoredKey> {
    return this.#keys;
  }

  /** What there was at a revision. */
  stateAt(revision: bigint): ReadonlyMap<string, StoredKey> | undefined {
    return this.#states.get(revision);
  }

  snapshot(prefix: string): StoreUpdate & { kind: "snapshot" } {
    const keys = [...this.#keys.values()].filter(({ key }) => key.startsWith(prefix));
    return { kind: "snapshot", cluster: 1n, revision: this.#revision, keys };
  }

  /** What happened after a revision; undefined when that is forgotten. */
  changes(prefix: string, after: bigint): (StoreUpdate & { kind: "changes" }) | undefined {
    if (after < this.#compacted) return undefined;
    const events = this.#history
      .filter(({ revision }) => revision > after)
      .flatMap((one) => one.events)
      .filter((event) => (event.kind === "put" ? event.at.key : event.key).startsWith(prefix));
    return { kind: "changes", revision: this.#revision, events };
  }

  grant(id: GrantId | undefined, seconds: number): GrantId {
    const chosen = id ?? this.#nextGrant++;
    if (this.#grants.has(chosen)) throw new Error("lease already exists");
    this.#grants.set(chosen, { seconds, endsAt: this.#now() + seconds * 1000 });
    return chosen;
  }

  grants(): readonly GrantId[] {
    return [...this.#grants.keys()];
  }

  revoke(id: GrantId): void {
    if (!this.#grants.delete(id)) return;
    this.#change(this.#keysOf(id).map((key) => ({ key, put: undefined })));
  }

  commit({ compares, puts, deletes }: LeaseTransaction): Committed {
    const found = compares.flatMap(({ key }) => this.#keys.get(key) ?? []);
    const holds = compares.every(
      ({ key, modRevision }) => (this.#keys.get(key)?.modRevision ?? 0n) === modRevision,
    );
    if (!holds) return { kind: "refused", revision: this.#revision, found };
    for (const { grant } of puts)
      if (grant !== 0n && !this.#grants.has(grant))
        throw etcdError("ETCD_LEASE_GONE", "requested lease not found");
    this.#change([
      ...deletes.map((key) => ({ key, put: undefined })),
      ...puts.map(({ write, grant }) => ({ key: write.key, put: { value: write.value, grant } })),
    ]);
    return { kind: "done", revision: this.#revision };
  }

  /** What anybody may do, in no transaction. */
  put(key: string, value: string, grant: GrantId): void {
    this.#change([{ key, put: { value, grant } }]);
  }

  delete(key: string): void {
    this.#change([{ key, put: undefined }]);
  }

  compact(): void {
    this.#compacted = this.#revision;
    this.#history.length = 0;
  }

  /** A new leader gives every lease its whole time again. */
  leaderChange(): void {
    for (const grant of this.#grants.values()) grant.endsAt = this.#now() + grant.seconds * 1000;
  }

  /** When the next grant runs out. */
  get nextEnd(): number {
    return Math.min(Infinity, ...[...this.#grants.values()].map(({ endsAt }) => endsAt));
  }

  expire(): void {
    for (const [id, { endsAt }] of this.#grants)
      if (endsAt <= this.#now()) {
        this.onExpire(id, this.#keysOf(id));
        this.revoke(id);
      }
  }

  #keysOf(id: GrantId): string[] {
    return [...this.#keys.values()].filter(({ grant }) => grant === id).map(({ key }) => key);
  }

  #change(
    changes: readonly {
      readonly key: string;
      readonly put: { readonly value: string; readonly grant: GrantId } | undefined;
    }[],
  ): void {
    const real = changes.filter(({ key, put }) => put !== undefined || this.#keys.has(key));
    if (real.length === 0) return;
    const modRevision = ++this.#revision;
    const events = real.map(({ key, put }): StoreEvent => {
      if (put === undefined) {
        this.#keys.delete(key);
        return { kind: "delete", key, modRevision };
      }
      const createRevision = this.#keys.get(key)?.createRevision ?? modRevision;
      const at = { key, ...put, createRevision, modRevision };
      this.#keys.set(key, at);
      return { kind: "put", at };
    });
    this.#history.push({ revision: modRevision, events });
    this.#states.set(modRevision, new Map(this.#keys));
    this.onChange();
  }
}
