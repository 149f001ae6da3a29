/**
 * podnet's interface to etcd. Numbers of etcd's own are bigint, as they are 64 bits wide; keys are
 * text (bytes that are not UTF-8 become U+FFFD, so that they never look like a key of podnet's).
 *
 * Every call throws `PodnetError`: `ETCD_UNREACHABLE` when no endpoint answered (with `uncertain`
 * in its details where a write may have been done anyway), `ETCD_DENIED` when certificates, user,
 * password or permissions are insufficient, `ETCD_COMPACTED`, `ETCD_LEASE_GONE`, `ETCD_FAILED` for
 * other errors of etcd, and the reason of the caller's signal.
 */
export interface Etcd {
  range(where: Where, options?: RangeOptions): Promise<RangeAnswer>;
  put(key: string, value: Value, options?: PutOptions): Promise<Answer>;
  delete(where: Where, options?: CallOptions): Promise<DeleteAnswer>;
  /**
   * `do` when all of `when` hold, else `otherwise`; at most 128 operations, each key written once.
   */
  txn(txn: Txn, options?: CallOptions): Promise<TxnAnswer>;
  grant(ttlSeconds: number, options?: GrantOptions): Promise<GrantAnswer>;
  revoke(lease: bigint, options?: CallOptions): Promise<Answer>;
  /**
   * Gives a lease its whole time again, and says how many seconds that is; undefined of one that
   * has ended.
   */
  keepAlive(lease: bigint, options?: CallOptions): Promise<number | undefined>;
  /** Undefined of a lease that has ended. */
  timeToLive(lease: bigint, options?: CallOptions): Promise<TimeToLive | undefined>;
  /**
   * Everything that happens from revision `from` on, in order, each revision's events together,
   * until it throws: the connection lost or silent, the member without a leader, `from` compacted
   * (`ETCD_COMPACTED`), the signal aborted.
   */
  watch(where: Where, options: WatchOptions): AsyncIterable<Watched>;
  /** Forgets what was before a revision. For tests: podnet never compacts an etcd of others. */
  compact(revision: bigint, options?: CallOptions): Promise<Answer>;
}

/** One key, or all that begin with a prefix. */
export type Where = { readonly key: string } | { readonly prefix: string };

/** Text goes as UTF-8. */
export type Value = Uint8Array | string;

export interface KeyValue {
  readonly key: string;
  readonly value: Uint8Array;
  readonly createRevision: bigint;
  readonly modRevision: bigint;
  /** 1 after its creation, one more with each put. */
  readonly version: bigint;
  /** 0n when it has none. */
  readonly lease: bigint;
}

export interface CallOptions {
  readonly signal?: AbortSignal;
}

export interface PutOptions extends CallOptions {
  readonly lease?: bigint;
}

export interface GrantOptions extends CallOptions {
  /** The id wanted, of one that is not there; etcd chooses unless given. */
  readonly lease?: bigint;
}

export interface RangeOptions extends CallOptions {
  /** As it was then; the newest unless given. */
  readonly revision?: bigint;
  readonly limit?: number;
  /** Values stay empty. */
  readonly keysOnly?: boolean;
}

export interface Answer {
  /** The store's revision when this was done. */
  readonly revision: bigint;
  /** Which etcd it was: another one after its data was lost or replaced. */
  readonly cluster: bigint;
}

export interface RangeAnswer extends Answer {
  /** By key. */
  readonly kvs: readonly KeyValue[];
  /** There are more than `limit`. */
  readonly more: boolean;
}

export interface DeleteAnswer extends Answer {
  readonly deleted: number;
}

/** A condition on a key; of one that is not there version, revisions and lease are 0n. */
export type Compare =
  | {
      readonly key: string;
      readonly target: "version" | "createRevision" | "modRevision" | "lease";
      readonly is: Relation;
      readonly value: bigint;
    }
  | {
      readonly key: string;
      readonly target: "value";
      readonly is: Relation;
      readonly value: Value;
    };

type Relation = "=" | "!=" | ">" | "<";

export type Operation =
  | {
      readonly kind: "put";
      readonly key: string;
      readonly value: Value;
      readonly lease?: bigint;
    }
  | { readonly kind: "delete"; readonly where: Where }
  | { readonly kind: "range"; readonly where: Where };

export interface Txn {
  readonly when: readonly Compare[];
  readonly do: readonly Operation[];
  readonly otherwise?: readonly Operation[];
}

export type OperationResult =
  | { readonly kind: "put" }
  | { readonly kind: "delete"; readonly deleted: number }
  | { readonly kind: "range"; readonly kvs: readonly KeyValue[] };

export interface TxnAnswer extends Answer {
  /** Whether the conditions held. */
  readonly succeeded: boolean;
  /** Of the operations done, in their order. */
  readonly results: readonly OperationResult[];
}

export interface GrantAnswer extends Answer {
  readonly lease: bigint;
  /** Chosen by etcd, which has a minimum. */
  readonly ttlSeconds: number;
}

export interface TimeToLive {
  readonly ttlSeconds: number;
  readonly grantedSeconds: number;
}

export interface WatchOptions extends CallOptions {
  /** The first revision wanted: one more than that of what is known already. */
  readonly from: bigint;
}

export type WatchEvent =
  | { readonly kind: "put"; readonly kv: KeyValue }
  | { readonly kind: "delete"; readonly key: string; readonly modRevision: bigint };

export type Watched =
  /** All that these revisions did; `revision` is the newest of them. */
  | {
      readonly kind: "events";
      readonly revision: bigint;
      readonly events: readonly WatchEvent[];
    }
  /** There was nothing else up to this revision. */
  | { readonly kind: "reached"; readonly revision: bigint }
  /**
   * The watch is established, and answers: first when it was made, then about once a second.
   * `revision` is the member's current one, which may be behind the others.
   */
  | ({ readonly kind: "alive" } & Answer);
