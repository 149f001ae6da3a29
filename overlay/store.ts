import type { Brand } from "../core/brand.ts";

/** A point in the store's history. */
export type Revision = bigint;
/**
 * The id of a store's lease of time; 0n for none, which never ends. It is not a subnet lease, which
 * is a key that has such a lease.
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
 * The new content of a lease's key. Only `leaseWrite` makes one, so nothing else can be written
 * alongside flannel's leases.
 */
export type LeaseWrite = Brand<{ readonly key: string; readonly value: string }, "LeaseWrite">;

/**
 * Puts and deletes that are carried out as a whole or not at all: only if every key is unchanged
 * since the revision named (0n: it does not exist).
 */
export interface LeaseTransaction {
  readonly compares: readonly { readonly key: string; readonly modRevision: Revision }[];
  readonly puts: readonly { readonly write: LeaseWrite; readonly grant: GrantId }[];
  readonly deletes: readonly string[];
}

/**
 * The result of a transaction. Refused: with the current values of those compared keys that exist.
 */
export type Committed =
  | { readonly kind: "done"; readonly revision: Revision }
  | { readonly kind: "refused"; readonly revision: Revision; readonly found: readonly StoredKey[] };

/** A change of a key. */
export type StoreEvent =
  | { readonly kind: "put"; readonly at: StoredKey }
  | { readonly kind: "delete"; readonly key: string; readonly modRevision: Revision };

/**
 * The updates of a followed store: first all keys, then the changes, in order and each once; and
 * the loss of the connection.
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

/** The remaining time of a lease of time, and its full time after each renewal. */
export interface TimeLeft {
  readonly seconds: number;
  readonly grantedSeconds: number;
}

/**
 * The functions of etcd that the overlay needs. Every call ends with `signal`, and may fail with an
 * unknown outcome.
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
  /** Ends a lease of time and deletes its keys. Absence is success. */
  revoke(id: GrantId, signal: AbortSignal): Promise<void>;
  /** The time of a lease of time; undefined if it has ended. */
  timeLeft(id: GrantId, signal: AbortSignal): Promise<TimeLeft | undefined>;
  commit(transaction: LeaseTransaction, signal: AbortSignal): Promise<Committed>;
  /** Follows every key that starts with the prefix, through anything, until `signal`. */
  follow(prefix: string, signal: AbortSignal): AsyncIterable<StoreUpdate>;
}
