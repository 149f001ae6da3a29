import type { Brand } from "../core/brand.ts";

/** A point in the store's history. */
export type Revision = bigint;
/**
 * Names a store's lease of time; 0n: none, for ever. Not the lease of a subnet, which is a key that
 * has such a lease.
 */
export type GrantId = bigint;

/** A key as the store has it. */
export interface StoredKey {
  readonly key: string;
  readonly value: string;
  readonly grant: GrantId;
  /** When it came to be: who of two was first. */
  readonly createRevision: Revision;
  readonly modRevision: Revision;
}

/**
 * What a lease's key is to become. Only `leaseWrite` makes one: nothing else can be written
 * alongside flannel's leases.
 */
export type LeaseWrite = Brand<{ readonly key: string; readonly value: string }, "LeaseWrite">;

/**
 * Either all of it happens or nothing: puts and deletes, if every key is as it was at the revision
 * named (0n: is not there).
 */
export interface LeaseTransaction {
  readonly compares: readonly { readonly key: string; readonly modRevision: Revision }[];
  readonly puts: readonly { readonly write: LeaseWrite; readonly grant: GrantId }[];
  readonly deletes: readonly string[];
}

/**
 * What became of a transaction. Refused: the keys compared, those of them that are there, as they
 * are.
 */
export type Committed =
  | { readonly kind: "done"; readonly revision: Revision }
  | { readonly kind: "refused"; readonly revision: Revision; readonly found: readonly StoredKey[] };

/** What happened to a key. */
export type StoreEvent =
  | { readonly kind: "put"; readonly at: StoredKey }
  | { readonly kind: "delete"; readonly key: string; readonly modRevision: Revision };

/**
 * What following the store tells: all there is, then what changes, in order and each once; and when
 * it has lost touch.
 */
export type StoreUpdate =
  | {
      readonly kind: "snapshot";
      /**
       * Which store it is: revisions of another one, made anew after a loss, are not to be
       * compared.
       */
      readonly cluster: bigint;
      readonly revision: Revision;
      readonly keys: readonly StoredKey[];
    }
  | {
      readonly kind: "changes";
      readonly revision: Revision;
      readonly events: readonly StoreEvent[];
    }
  | { readonly kind: "stale"; readonly error: unknown }
  | { readonly kind: "current" };

/** What a lease of time has left, and what it is given with each renewal. */
export interface TimeLeft {
  readonly seconds: number;
  readonly grantedSeconds: number;
}

/**
 * What the overlay needs of etcd. Every call ends with `signal`, and may fail without telling
 * whether it was done.
 */
export interface LeaseStore {
  /** One key; undefined when it is not there. */
  read(
    key: string,
    signal: AbortSignal,
  ): Promise<{ readonly revision: Revision; readonly at: StoredKey | undefined }>;
  /** Every key that starts with the prefix, as of now. */
  list(prefix: string, signal: AbortSignal): Promise<StoreUpdate & { kind: "snapshot" }>;
  /** A lease of time by the id given, or by one of the store's. Throws if there is one already. */
  grant(id: GrantId | undefined, seconds: number, signal: AbortSignal): Promise<GrantId>;
  /** Ends a lease of time and deletes what has it. Absent is success. */
  revoke(id: GrantId, signal: AbortSignal): Promise<void>;
  /** Of a lease of time; undefined when it has ended. */
  timeLeft(id: GrantId, signal: AbortSignal): Promise<TimeLeft | undefined>;
  commit(transaction: LeaseTransaction, signal: AbortSignal): Promise<Committed>;
  /** Follows every key that starts with the prefix, through anything, until `signal`. */
  follow(prefix: string, signal: AbortSignal): AsyncIterable<StoreUpdate>;
}
