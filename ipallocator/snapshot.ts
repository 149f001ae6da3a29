import type { Cidr, Ip } from "../core/address.ts";
import { PodnetError } from "../core/errors.ts";
import type { Owner } from "./owner.ts";

/** A reserved range as people see it. */
export interface Reservation {
  readonly first: Ip;
  readonly last: Ip;
  readonly reason: string;
}

export interface Lease {
  readonly ip: Ip;
  readonly owner: Owner;
}

export interface QuarantinedAddress {
  readonly ip: Ip;
  /** When it was released, milliseconds since 1970. */
  readonly since: number;
}

/**
 * All of a pool as plain JSON. Lists are in the order of addresses, the quarantine oldest first.
 */
export interface PoolSnapshot {
  readonly version: 1;
  readonly network: Cidr;
  readonly quarantineMs: number;
  /** The address handed out last; the search goes on behind it. */
  readonly cursor?: Ip;
  /** Without those every pool has, network and broadcast. */
  readonly reservations: readonly Reservation[];
  readonly leases: readonly Lease[];
  readonly quarantined: readonly QuarantinedAddress[];
}

export const snapshotVersion = 1;

/** Refuses a snapshot of another version. Throws `STATE_NEWER` or `STATE_CORRUPT`. */
export function checkSnapshotVersion(snapshot: PoolSnapshot): void {
  const version: unknown = snapshot.version;
  if (version === snapshotVersion) return;
  if (typeof version === "number" && version > snapshotVersion) {
    throw new PodnetError("STATE_NEWER", `Pool snapshot has version ${version}, known is 1`, {
      hint: "Use the podnet that wrote it, or a later one",
      details: { version },
    });
  }
  throw new PodnetError("STATE_CORRUPT", "Pool snapshot has no version this podnet knows", {
    hint: "Restore the state directory from a backup",
  });
}
