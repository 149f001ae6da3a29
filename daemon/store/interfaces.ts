import type { Mac } from "../../core/address.ts";
import type { IfName, NetworkName, PodId } from "../../core/names.ts";
import type { Database } from "./database.ts";
import { integer, text } from "./rows.ts";

export interface InterfaceRow {
  readonly podId: PodId;
  readonly position: number;
  readonly network: NetworkName;
  readonly tap: IfName;
  readonly mac: Mac;
  readonly guestName: IfName;
}

export function insertInterface(db: Database, row: InterfaceRow): void {
  db.run(
    `INSERT INTO interfaces (pod_id, position, network, tap, mac, guest_name)
     VALUES (?, ?, ?, ?, ?, ?)`,
    row.podId,
    row.position,
    row.network,
    row.tap,
    row.mac,
    row.guestName,
  );
}

export function podByMac(db: Database, mac: Mac): PodId | undefined {
  const row = db.get("SELECT pod_id FROM interfaces WHERE mac = ?", mac);
  return row === undefined ? undefined : text<PodId>(row, "pod_id");
}

/** Interfaces, and so ports, on a network. */
export function countInterfaces(db: Database, network: NetworkName): number {
  const row = db.get("SELECT count(*) AS n FROM interfaces WHERE network = ?", network);
  return row === undefined ? 0 : integer(row, "n");
}
