import { type Cidr, contains, type Ip } from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { Database } from "../store/database.ts";
import { type Row, integer, optionalInteger, text } from "../store/rows.ts";

/** The holder of an address: a lease belongs to an interface, not to a run. */
export interface LeaseOwner {
  readonly kind: "pod" | "attachment" | "gateway";
  /** For a pod: its id, `/` and the interface's position; for a container's attachment its id. */
  readonly id: string;
}

export interface LeaseRow {
  readonly network: NetworkName;
  readonly address: Ip;
  readonly owner: LeaseOwner;
  readonly sinceMs: number;
  /** Set while the address is in quarantine. */
  readonly freedMs: number | undefined;
}

const fromRow = (row: Row): LeaseRow => ({
  network: text<NetworkName>(row, "network"),
  address: text<Ip>(row, "address"),
  owner: { kind: text<LeaseOwner["kind"]>(row, "owner_kind"), id: text(row, "owner_id") },
  sinceMs: integer(row, "since_ms"),
  freedMs: optionalInteger(row, "freed_ms"),
});

/** Takes an address; one in quarantine changes hands. */
export function insertLease(
  db: Database,
  network: NetworkName,
  address: Ip,
  owner: LeaseOwner,
  nowMs: number,
): void {
  // The primary key refuses a held address: a last line behind the bitmap.
  db.run(
    "DELETE FROM leases WHERE network = ? AND address = ? AND freed_ms IS NOT NULL",
    network,
    address,
  );
  db.run(
    "INSERT INTO leases (network, address, owner_kind, owner_id, since_ms) VALUES (?, ?, ?, ?, ?)",
    network,
    address,
    owner.kind,
    owner.id,
    nowMs,
  );
}

/** Puts an address into quarantine. */
export function freeLease(db: Database, network: NetworkName, address: Ip, nowMs: number): void {
  db.run(
    "UPDATE leases SET freed_ms = ? WHERE network = ? AND address = ?",
    nowMs,
    network,
    address,
  );
}

export function listLeases(db: Database, network: NetworkName): LeaseRow[] {
  return db.all("SELECT * FROM leases WHERE network = ? ORDER BY address", network).map(fromRow);
}

/**
 * The addresses that were given to an owner last, those in quarantine too: a container on its way
 * out keeps its links for a while. An address that has another owner by now is not among them.
 */
export const leasedTo = (db: Database, network: NetworkName, { kind, id }: LeaseOwner): Ip[] =>
  db
    .all(
      "SELECT address FROM leases WHERE network = ? AND owner_kind = ? AND owner_id = ? ORDER BY address",
      network,
      kind,
      id,
    )
    .map((row) => text<Ip>(row, "address"));

/**
 * Addresses of containers that are on their way out: their links may answer for them until their
 * rows go. An address that was given to another owner meanwhile is not among them.
 */
export const leavingLeases = (db: Database, network: NetworkName): LeaseRow[] =>
  db
    .all(
      `SELECT leases.* FROM leases JOIN attachments ON attachments.id = owner_id
       WHERE leases.network = ? AND owner_kind = 'attachment' AND state = 'deleting'
       ORDER BY address`,
      network,
    )
    .map(fromRow);

/**
 * Deletes addresses whose quarantine ended before `beforeMs`. An address of a container that still
 * has a row is kept: where the row's plan is damaged, only the lease names the address that the
 * container's link answers for.
 */
export function pruneLeases(db: Database, beforeMs: number): void {
  db.run(
    `DELETE FROM leases WHERE freed_ms IS NOT NULL AND freed_ms < ?
     AND NOT (owner_kind = 'attachment' AND owner_id IN (SELECT id FROM attachments))`,
    beforeMs,
  );
}

/** Deletes quarantined addresses of a network that are outside of its subnets. */
export function deleteQuarantinedOutside(
  db: Database,
  network: NetworkName,
  cidrs: readonly Cidr[],
): void {
  for (const { address, freedMs } of listLeases(db, network))
    if (freedMs !== undefined && !cidrs.some((cidr) => contains(cidr, address)))
      db.run("DELETE FROM leases WHERE network = ? AND address = ?", network, address);
}
