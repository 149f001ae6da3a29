import type { PodId, PodName } from "../../core/names.ts";
import type { Deviation } from "../../network/model/deviation.ts";
import type { ErrorRecord } from "./error-record.ts";
import type { Span } from "./span.ts";
import type { Database } from "../store/database.ts";
import { type Row, integer, json, text } from "../store/rows.ts";

/** Events kept; a reader further behind has to list anew. */
export const eventLimit = 10_000;

/**
 * Kinds of events for watchers. `drift` is not about a pod, `attachment` is about a container,
 * `service` about a backend, and `guard` and `denial` about either; all others are about a pod.
 */
export type EventKind =
  | "created"
  | "updated"
  | "step"
  | "deleted"
  | "drift"
  | "attachment"
  | "guard"
  | "denial"
  | "service";

/** Changes of the host by other programs. */
export interface DriftData {
  /** `network default`, `port pn…`. */
  readonly part: string;
  readonly found: readonly Deviation[];
  readonly healed: boolean;
  /** Something keeps undoing it: the next repair comes no sooner, milliseconds. 0 as a rule. */
  readonly pauseMs: number;
}

/** Packets of one kind that the host dropped or refused at a port. */
export interface GuardData {
  /** Its name in the guest or container. */
  readonly interface: string;
  readonly link: string;
  readonly kind: string;
  readonly packets: number;
  readonly bytes: number;
}

/** What one rule of a policy denied of a pod or container. */
export interface DenialData {
  /** The pod's or attachment's id. */
  readonly holder: string;
  readonly direction: "egress" | "ingress";
  readonly policy: string;
  readonly rule: string;
  readonly reason: string;
  readonly unit: "packets" | "connections" | "questions";
  readonly count: number;
}

interface EventData {
  /** For people; may be empty. */
  readonly text: string;
  /** With `step`. */
  readonly span?: Span;
  /** Why, when something failed. */
  readonly error?: ErrorRecord;
  /** With `drift`. */
  readonly drift?: DriftData;
  /** With `guard`. */
  readonly guard?: readonly GuardData[];
  /** With `denial`. */
  readonly denials?: readonly DenialData[];
}

export interface EventRow {
  /** Grows and is never reused. */
  readonly cursor: number;
  readonly timeMs: number;
  readonly kind: EventKind;
  /** Absent when it is about a network or a container. */
  readonly podId?: PodId;
  readonly podName?: PodName;
  readonly data: EventData;
}

const fromRow = (row: Row): EventRow => ({
  cursor: integer(row, "cursor"),
  timeMs: integer(row, "time_ms"),
  kind: text<EventKind>(row, "kind"),
  ...(text(row, "pod_id") === ""
    ? {}
    : { podId: text<PodId>(row, "pod_id"), podName: text<PodName>(row, "pod_name") }),
  data: json(row, "data"),
});

/** Appends an event and returns it with its cursor; the oldest beyond the limit goes. */
export function insertEvent(db: Database, event: Omit<EventRow, "cursor">): EventRow {
  const row = db.get(
    "INSERT INTO events (time_ms, kind, pod_id, pod_name, data) VALUES (?, ?, ?, ?, ?) RETURNING *",
    event.timeMs,
    event.kind,
    event.podId ?? "",
    event.podName ?? "",
    JSON.stringify(event.data),
  );
  const stored = fromRow(row as Row);
  db.run("DELETE FROM events WHERE cursor <= ?", stored.cursor - eventLimit);
  return stored;
}

/** Events after a cursor, oldest first. */
export function eventsAfter(db: Database, cursor: number, limit: number): EventRow[] {
  return db
    .all("SELECT * FROM events WHERE cursor > ? ORDER BY cursor LIMIT ?", cursor, limit)
    .map(fromRow);
}

/** The stored events of a kind, oldest first. */
export const eventsOfKind = (db: Database, kind: EventKind): EventRow[] =>
  db.all("SELECT * FROM events WHERE kind = ? ORDER BY cursor", kind).map(fromRow);

/**
 * More events than a loss of power can take along with commits that were not flushed: a thousand
 * pages at most wait for that.
 */
const mostLost = 1000;

/**
 * After a restart of the host: cursors that were sent, and lost with the power, are not used again.
 */
export function skipLostCursors(db: Database): void {
  const skip = (): unknown =>
    db.run("UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'events'", mostLost);
  db.transaction(skip, undefined, "always", "essential");
}

/** The oldest and newest cursor there are; both 0 when there was never an event. */
export function eventBounds(db: Database): { readonly oldest: number; readonly newest: number } {
  const row = db.get(
    `SELECT coalesce(min(cursor), 0) AS oldest,
            coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) AS newest FROM events`,
  ) as Row;
  return { oldest: integer(row, "oldest"), newest: integer(row, "newest") };
}
