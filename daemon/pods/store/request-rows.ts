import type { PodId } from "../../../core/names.ts";
import type { Database } from "../../store/database.ts";
import { type Row, integer, optionalText, text } from "../../store/rows.ts";

/** Kept for a day, and never more than this many: callers fill this table. */
export const requestLimits = { count: 10_000, ageMs: 24 * 3600 * 1000 } as const;

export interface RequestRow {
  readonly id: string;
  /** SHA-256 of the pod that was asked for: the same id must mean the same pod. */
  readonly digest: string;
  readonly podId: PodId;
  /** The error it ended with, as JSON. */
  readonly error: string | undefined;
  readonly done: boolean;
  readonly createdMs: number;
}

const fromRow = (row: Row): RequestRow => ({
  id: text(row, "id"),
  digest: text(row, "digest"),
  podId: text<PodId>(row, "pod_id"),
  error: optionalText(row, "error"),
  done: integer(row, "done") === 1,
  createdMs: integer(row, "created_ms"),
});

/** Records a request and drops the oldest beyond the limits. */
export function insertRequest(
  db: Database,
  request: Pick<RequestRow, "id" | "digest" | "podId">,
  nowMs: number,
): void {
  // First: an id that has aged may be used for another request.
  db.run("DELETE FROM requests WHERE created_ms < ?", nowMs - requestLimits.ageMs);
  db.run(
    "INSERT INTO requests (id, digest, pod_id, done, created_ms) VALUES (?, ?, ?, 0, ?)",
    request.id,
    request.digest,
    request.podId,
    nowMs,
  );
  const count = db.get("SELECT count(*) AS n FROM requests");
  if (count === undefined || integer(count, "n") <= requestLimits.count) return;
  // Deletes some more than needed, so that the next requests need not.
  db.run(
    `DELETE FROM requests WHERE id IN
       (SELECT id FROM requests WHERE done = 1 ORDER BY created_ms LIMIT 100)`,
  );
}

export function getRequest(db: Database, id: string, nowMs: number): RequestRow | undefined {
  const row = db.get(
    "SELECT * FROM requests WHERE id = ? AND created_ms >= ?",
    id,
    nowMs - requestLimits.ageMs,
  );
  return row === undefined ? undefined : fromRow(row);
}

/** Ends the requests for a pod that are still open, with the error they came to, if any. */
export function finishRequestsOf(db: Database, podId: PodId, error: string | undefined): void {
  db.run(
    "UPDATE requests SET done = 1, error = ? WHERE pod_id = ? AND done = 0",
    error ?? null,
    podId,
  );
}

/** Deletes a pod's unanswered requests, so that a repeated request begins anew. */
export function dropRequestsOf(db: Database, podId: PodId): void {
  db.run("DELETE FROM requests WHERE pod_id = ? AND done = 0", podId);
}
