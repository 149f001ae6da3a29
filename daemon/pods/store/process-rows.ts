import type { PodId } from "../../../core/names.ts";
import type { ProcessEnd } from "../../../guest-init/protocol/main-process.ts";
import type { Database } from "../../store/database.ts";
import { type Row, integer, optionalInteger } from "../../store/rows.ts";

/** The main process of a pod, of its latest start. */
export interface ProcessRow {
  /** Counts its starts: the first one is 1. */
  readonly run: number;
  readonly startedMs: number;
  /** Absent while it runs. */
  readonly endedMs: number | undefined;
  /** Absent while it runs, and when it ended with its machine. */
  readonly end: ProcessEnd | undefined;
  /** Starts by the restart policy since a caller started it. */
  readonly restarts: number;
  /** Starts by the policy in a row: see `nextStart`. */
  readonly inARow: number;
  /** When podnetd is to start it again; absent unless it is. */
  readonly nextMs: number | undefined;
}

function fromRow(row: Row): ProcessRow {
  const code = optionalInteger(row, "exit_code");
  const signal = optionalInteger(row, "signal");
  return {
    run: integer(row, "run"),
    startedMs: integer(row, "started_ms"),
    endedMs: optionalInteger(row, "ended_ms"),
    end: signal !== undefined ? { signal } : code !== undefined ? { code } : undefined,
    restarts: integer(row, "restarts"),
    inARow: integer(row, "in_a_row"),
    nextMs: optionalInteger(row, "next_ms"),
  };
}

export function getProcess(db: Database, podId: PodId): ProcessRow | undefined {
  const row = db.get("SELECT * FROM processes WHERE pod_id = ?", podId);
  return row === undefined ? undefined : fromRow(row);
}

export function putProcess(db: Database, podId: PodId, row: ProcessRow): void {
  const { end } = row;
  db.run(
    `INSERT OR REPLACE INTO processes
       (pod_id, run, started_ms, ended_ms, exit_code, signal, restarts, in_a_row, next_ms)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    podId,
    row.run,
    row.startedMs,
    row.endedMs ?? null,
    end !== undefined && "code" in end ? end.code : null,
    end !== undefined && "signal" in end ? end.signal : null,
    row.restarts,
    row.inARow,
    row.nextMs ?? null,
  );
}
