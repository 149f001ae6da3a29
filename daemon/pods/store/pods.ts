import type { PodSpec } from "../../../api/pod-spec.ts";
import type { PodId, PodName } from "../../../core/names.ts";
import type { GuestIdentity } from "../../../guest-init/channel/guest.ts";
import type { ObservedGuest } from "../../../guest-init/protocol/configure.ts";
import type { ErrorRecord } from "../../events/error-record.ts";
import type { PodPlan } from "./pod-plan.ts";
import type { Span } from "../../events/span.ts";
import type { Database } from "../../store/database.ts";
import { type DamagedPod, forgetSound, isDamaged, anyFromRow, usable } from "./pod-rows.ts";
import { text } from "../../store/rows.ts";
import type { PodContents, PodRow, PodState } from "./pod-row.ts";

/** The ids of all pods. */
export function podIds(db: Database): Set<string> {
  return new Set(db.all("SELECT id FROM pods").map((row) => text(row, "id")));
}

export function insertPod(db: Database, plan: PodPlan, spec: PodSpec, nowMs: number): void {
  db.run(
    `INSERT INTO pods (id, name, state, spec, plan, created_ms, changed_ms)
     VALUES (?, ?, 'creating', ?, ?, ?, ?)`,
    plan.podId,
    plan.name,
    JSON.stringify(spec),
    JSON.stringify(plan),
    nowMs,
    nowMs,
  );
}

export interface StateChange {
  readonly state: PodState;
  readonly reason?: string;
  readonly failure?: ErrorRecord;
}

/** Sets a pod's state with its reason; the former reason goes. */
export function setPodState(db: Database, id: PodId, change: StateChange, nowMs: number): void {
  db.run(
    `UPDATE pods SET state = ?1, established = established OR ?1 = 'running',
       reason = ?2, failure = ?3, changed_ms = ?4 WHERE id = ?5`,
    change.state,
    change.reason ?? null,
    change.failure === undefined ? null : JSON.stringify(change.failure),
    nowMs,
    id,
  );
}

/**
 * Writes a pod's contents. `before` are the contents that the next start goes back to, if it finds
 * any.
 */
export function setPodContents(
  db: Database,
  id: PodId,
  { spec, plan }: PodContents,
  before: PodContents | undefined,
): void {
  db.run(
    "UPDATE pods SET spec = ?, plan = ?, before = ? WHERE id = ?",
    JSON.stringify(spec),
    JSON.stringify(plan),
    before === undefined ? null : JSON.stringify(before),
    id,
  );
}

/** Sets the reason of a pod whose state does not change; undefined removes it. */
export function setPodReason(db: Database, id: PodId, reason: string | undefined): void {
  db.run("UPDATE pods SET reason = ? WHERE id = ?", reason ?? null, id);
}

/** Records the guest's agent and its report. */
export function setPodGuest(
  db: Database,
  id: PodId,
  guest: GuestIdentity,
  observed: ObservedGuest | undefined,
): void {
  db.run(
    "UPDATE pods SET guest = ?, observed = ? WHERE id = ?",
    JSON.stringify(guest),
    observed === undefined ? null : JSON.stringify(observed),
    id,
  );
}

/** Records what was observed of a guest that reports nothing. */
export function setPodObserved(db: Database, id: PodId, observed: ObservedGuest | undefined): void {
  db.run(
    "UPDATE pods SET observed = ? WHERE id = ?",
    observed === undefined ? null : JSON.stringify(observed),
    id,
  );
}

export function setPodSpans(db: Database, id: PodId, spans: readonly Span[]): void {
  db.run("UPDATE pods SET spans = ? WHERE id = ?", JSON.stringify(spans), id);
}

/** Throws `STATE_CORRUPT` when the row is unreadable. */
export function getPod(db: Database, id: PodId): PodRow | undefined {
  const row = getAnyPod(db, id);
  return row === undefined ? undefined : usable(row);
}

export function getAnyPod(db: Database, id: PodId): PodRow | DamagedPod | undefined {
  const row = db.get("SELECT * FROM pods WHERE id = ?", id);
  return row === undefined ? undefined : anyFromRow(row);
}

/** Undefined also for an unreadable row: for callers that go on with other pods. */
export function getUsablePod(db: Database, id: PodId): PodRow | undefined {
  const row = getAnyPod(db, id);
  return row === undefined || isDamaged(row) ? undefined : row;
}

/**
 * The pods with this id or name, else those whose id begins with it (at least 4 characters). At
 * most two.
 */
export function findPods(db: Database, text: string): (PodRow | DamagedPod)[] {
  const exact = db.all(
    "SELECT * FROM pods WHERE id = ?1 OR name = ?1 ORDER BY id = ?1 DESC LIMIT 1",
    text,
  );
  if (exact.length > 0 || !/^[a-z2-7]{4,11}$/.test(text)) return exact.map(anyFromRow);
  return db
    .all("SELECT * FROM pods WHERE id >= ?1 AND id < ?1 || '~' ORDER BY id LIMIT 2", text)
    .map(anyFromRow);
}

/** Names that differ from a text by two letters at most in length: of a thousand pods at most. */
export const namesLike = (db: Database, to: string): string[] =>
  db
    .all(
      "SELECT name FROM pods WHERE length(name) BETWEEN ?1 - 2 AND ?1 + 2 ORDER BY name LIMIT 1000",
      to.length,
    )
    .map((row) => text(row, "name"));

/** All pods there are rows of, in the order they came. */
export const listAnyPods = (db: Database): (PodRow | DamagedPod)[] =>
  db.all("SELECT * FROM pods ORDER BY created_ms, id").map(anyFromRow);

/** Pods that can be worked with: all but the damaged ones. */
export const listPods = (db: Database): PodRow[] =>
  listAnyPods(db).filter((row): row is PodRow => !isDamaged(row));

/** The pods with a machine, running or paused, that can be worked with. */
export const listPodsWithMachine = (db: Database): PodRow[] =>
  db
    .all(`SELECT * FROM pods WHERE state IN ('running', 'paused') ORDER BY created_ms, id`)
    .map(anyFromRow)
    .filter((row): row is PodRow => !isDamaged(row));

/** The pods with rules of their own that can be worked with. */
export const listPodsWithRules = (db: Database): PodRow[] =>
  db
    .all(`SELECT * FROM pods WHERE ${hasRules} ORDER BY created_ms, id`)
    .map(anyFromRow)
    .filter((row): row is PodRow => !isDamaged(row));

/** (Text that is not JSON has none, where SQLite would refuse the query.) */
const hasRules = "CASE WHEN json_valid(spec) THEN json_type(spec, '$.policy') END IS NOT NULL";

/** A pod's name, for messages about other objects. */
export function podNameById(db: Database, id: PodId): PodName | undefined {
  const row = db.get("SELECT name FROM pods WHERE id = ?", id);
  return row === undefined ? undefined : text<PodName>(row, "name");
}

/** Whether a pod has rules of its own; one whose row is damaged has none. */
export const podHasRules = (db: Database, id: PodId): boolean =>
  db.get(`SELECT 1 FROM pods WHERE id = ? AND ${hasRules}`, id) !== undefined;

export function podIdByName(db: Database, name: PodName): PodId | undefined {
  const row = db.get("SELECT id FROM pods WHERE name = ?", name);
  return row === undefined ? undefined : text<PodId>(row, "id");
}

/** Deletes the pod with its interfaces and run; leases are freed separately. */
export function deletePod(db: Database, id: PodId): void {
  forgetSound(id);
  db.run("DELETE FROM pods WHERE id = ?", id);
}
