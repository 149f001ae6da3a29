import type { PodId } from "../../../core/names.ts";
import type { Database } from "../../store/database.ts";
import { integer, text } from "../../store/rows.ts";

/** When a pod's time is over; undefined: never, or it has been ended. */
export function getExpiry(db: Database, podId: PodId): number | undefined {
  const row = db.get("SELECT expires_ms FROM expiries WHERE pod_id = ?", podId);
  return row === undefined ? undefined : integer(row, "expires_ms");
}

/** The pods whose time is over, longest first. */
export const expiredPods = (db: Database, nowMs: number): PodId[] =>
  db
    .all("SELECT pod_id FROM expiries WHERE expires_ms <= ? ORDER BY expires_ms", nowMs)
    .map((row) => text<PodId>(row, "pod_id"));

export const putExpiry = (db: Database, podId: PodId, expiresMs: number): void => {
  db.run("INSERT OR REPLACE INTO expiries (pod_id, expires_ms) VALUES (?, ?)", podId, expiresMs);
};

export const deleteExpiry = (db: Database, podId: PodId): void => {
  db.run("DELETE FROM expiries WHERE pod_id = ?", podId);
};
