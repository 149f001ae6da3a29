import type { Mac } from "../../../core/address.ts";
import type { IfName, NetworkName, PodId } from "../../../core/names.ts";
import type { Database } from "../../store/database.ts";
import { integer, text } from "../../store/rows.ts";

export interface InterfaceRow {
  readonly podId: PodId;
  readonly position: number;
  /** Absent on a foreign bridge or tap, and where there is no NIC. */
  readonly network?: NetworkName | undefined;
  readonly tap?: IfName | undefined;
  readonly mac?: Mac | undefined;
  readonly guestName: IfName;
}

export function insertInterface(db: Database, row: InterfaceRow): void {
  db.run(
    `INSERT INTO interfaces (pod_id, position, network, tap, mac, guest_name)
     VALUES (?, ?, ?, ?, ?, ?)`,
    row.podId,
    row.position,
    row.network ?? null,
    row.tap ?? null,
    row.mac ?? null,
    row.guestName,
  );
}

/** Forgets all interfaces of a pod, to write them anew. */
export function deleteInterfaces(db: Database, podId: PodId): void {
  db.run("DELETE FROM interfaces WHERE pod_id = ?", podId);
}

export function podByMac(db: Database, mac: Mac): PodId | undefined {
  const row = db.get("SELECT pod_id FROM interfaces WHERE mac = ?", mac);
  return row === undefined ? undefined : text<PodId>(row, "pod_id");
}

export function podByTap(db: Database, tap: IfName): PodId | undefined {
  const row = db.get("SELECT pod_id FROM interfaces WHERE tap = ?", tap);
  return row === undefined ? undefined : text<PodId>(row, "pod_id");
}

/** Interfaces of pods and containers, and so ports, on a network. */
export function countInterfaces(db: Database, network: NetworkName): number {
  const row = db.get(
    `SELECT (SELECT count(*) FROM interfaces WHERE network = ?1)
          + (SELECT count(*) FROM attachments WHERE network = ?1) AS n`,
    network,
  );
  return row === undefined ? 0 : integer(row, "n");
}
