import type { PodId } from "../../../core/names.ts";
import type { VmRecord } from "../../../hypervisor/driver.ts";
import type { Database } from "../../store/database.ts";
import { type Row, integer, text } from "../../store/rows.ts";

export interface RunRow extends VmRecord {
  readonly startedMs: number;
}

const fromRow = (row: Row): RunRow => ({
  pid: integer(row, "pid"),
  startTime: text(row, "start_time"),
  bootId: text(row, "boot_id"),
  uid: integer(row, "uid"),
  runDir: text(row, "run_dir"),
  startedMs: integer(row, "started_ms"),
});

/** Records the machine a pod runs in; a pod has at most one. */
export function putRun(db: Database, podId: PodId, run: VmRecord, nowMs: number): void {
  db.run(
    `INSERT OR REPLACE INTO runs (pod_id, pid, start_time, boot_id, uid, run_dir, started_ms)
     VALUES (?, ?, ?, ?, ?, ?, ?)`,
    podId,
    run.pid,
    run.startTime,
    run.bootId,
    run.uid,
    run.runDir,
    nowMs,
  );
}

export function getRun(db: Database, podId: PodId): RunRow | undefined {
  const row = db.get("SELECT * FROM runs WHERE pod_id = ?", podId);
  return row === undefined ? undefined : fromRow(row);
}

/** The pods that have a recorded machine. */
export const podsWithRun = (db: Database): Set<string> =>
  new Set(db.all("SELECT pod_id FROM runs").map((row) => text(row, "pod_id")));

export function deleteRun(db: Database, podId: PodId): void {
  db.run("DELETE FROM runs WHERE pod_id = ?", podId);
}
