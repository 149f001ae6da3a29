import { sameWrite } from "./claim.ts";
import type { Subnets } from "./flannel/key.ts";
import type { Trouble } from "./lease-state.ts";
import type { Lease } from "./registry.ts";
import type { GrantId, LeaseTransaction, LeaseWrite } from "./store.ts";

/** The next action of a host for its lease. */
export type Intent =
  /** No action until that time, or until an event. */
  | { readonly kind: "rest"; readonly until?: number }
  /** A transaction; with a fresh etcd lease where `transaction` takes one. */
  | {
      readonly kind: "commit";
      readonly transaction: (grant: GrantId) => LeaseTransaction;
      readonly fresh: boolean;
      /** Subnets that this host does not have yet. */
      readonly candidate?: Subnets;
    }
  /** Delete the host's own key, whose subnets nothing uses. */
  | { readonly kind: "part"; readonly lease: Lease }
  /** The candidate is not wanted any more. */
  | { readonly kind: "cancel" }
  | { readonly kind: "drain"; readonly subnets: Subnets }
  | { readonly kind: "undrain" }
  /** Give the subnets up: they belong to no host by now, or this host decided to leave them. */
  | { readonly kind: "let-go" }
  /** Subnets on probation are this host's. */
  | { readonly kind: "confirmed" }
  /** Subnets on probation are another's, and their key is gone. */
  | { readonly kind: "dropped" }
  /** The key asked for shows as this host's. */
  | { readonly kind: "acquired"; readonly lease: Lease };

export interface Resolved {
  readonly intent: Intent;
  readonly troubles: readonly Trouble[];
}

export const rest: Intent = { kind: "rest" };
export const resolved = (intent: Intent, ...troubles: Trouble[]): Resolved => ({
  intent,
  troubles,
});

/** The end of keys of the host's. */
export const without = (leases: readonly Lease[]): LeaseTransaction => ({
  compares: leases.map(({ key, modRevision }) => ({ key, modRevision })),
  puts: [],
  deletes: leases.map(({ key }) => key),
});

/** Writes the key again with its present value, so that it lasts longer. */
export const again = (entry: Lease): Intent => ({
  kind: "commit",
  fresh: true,
  transaction: (grant) => ({
    compares: [{ key: entry.key, modRevision: entry.modRevision }],
    puts: [{ write: sameWrite(entry), grant }],
    deletes: [],
  }),
});

/** Creates a key that does not exist yet, in place of the host's keys that do not fit. */
export const create = (
  write: LeaseWrite,
  candidate?: Subnets,
  unfit: readonly Lease[] = [],
): Intent => ({
  kind: "commit",
  fresh: true,
  transaction: (grant) => ({
    compares: [
      { key: write.key, modRevision: 0n },
      ...unfit.map(({ key, modRevision }) => ({ key, modRevision })),
    ],
    puts: [{ write, grant }],
    deletes: unfit.map(({ key }) => key),
  }),
  ...(candidate === undefined ? {} : { candidate }),
});
