import type { AttachmentId } from "../store/holder.ts";
import type { AttachmentPlan } from "./attachment-plan.ts";
import {
  anyAttachment,
  type AttachmentName,
  type AttachmentState,
  type AttachmentRow,
  type DamagedAttachment,
  isDamagedAttachment,
} from "./attachment-rows.ts";
import { hostLinkOf } from "./link-names.ts";
import type { Database } from "../store/database.ts";
import { text } from "../store/rows.ts";

/** Writes an attachment that is being added. */
export function insertAttachment(db: Database, plan: AttachmentPlan, nowMs: number): void {
  const { id, containerId, ifName, config, network, netns } = plan;
  db.run(
    `INSERT INTO attachments
       (id, container_id, if_name, config, network, netns, state, plan, mac, host_link,
        created_ms, changed_ms)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'adding', ?7, ?8, ?9, ?10, ?10)`,
    id,
    containerId,
    ifName,
    config,
    network,
    netns,
    JSON.stringify(plan),
    plan.mac,
    hostLinkOf(plan),
    nowMs,
  );
}

export function setAttachmentState(
  db: Database,
  id: AttachmentId,
  state: AttachmentState,
  nowMs: number,
): void {
  db.run("UPDATE attachments SET state = ?, changed_ms = ? WHERE id = ?", state, nowMs, id);
}

export function setAttachmentPlan(db: Database, plan: AttachmentPlan, nowMs: number): void {
  db.run(
    "UPDATE attachments SET plan = ?, changed_ms = ? WHERE id = ?",
    JSON.stringify(plan),
    nowMs,
    plan.id,
  );
}

/** Forgets an attachment with its host ports; its leases are freed separately. */
export function deleteAttachment(db: Database, id: AttachmentId): void {
  db.run("DELETE FROM attachments WHERE id = ?", id);
}

/** A container that has a row, whether or not the row can be used. */
export type AnyAttachment = AttachmentRow | DamagedAttachment;

export function getAttachment(db: Database, id: AttachmentId): AnyAttachment | undefined {
  const row = db.get("SELECT * FROM attachments WHERE id = ?", id);
  return row === undefined ? undefined : anyAttachment(row);
}

/** The attachment of a container's interface, as its runtime names both. */
export function attachmentNamed(
  db: Database,
  { containerId, ifName }: AttachmentName,
): AnyAttachment | undefined {
  const row = db.get(
    "SELECT * FROM attachments WHERE container_id = ? AND if_name = ?",
    containerId,
    ifName,
  );
  return row === undefined ? undefined : anyAttachment(row);
}

export const attachmentIds = (db: Database): Set<string> =>
  new Set(db.all("SELECT id FROM attachments").map((row) => text(row, "id")));

/** All attachments, in the order they were made. */
export const listAnyAttachments = (db: Database): AnyAttachment[] =>
  db.all("SELECT * FROM attachments ORDER BY created_ms, id").map(anyAttachment);

/** The attachments whose rows are readable. */
export const listAttachments = (db: Database): AttachmentRow[] =>
  listAnyAttachments(db).filter((row): row is AttachmentRow => !isDamagedAttachment(row));

/** The attachments in one state, in the order they were made; reads no row in another state. */
export function attachmentsIn(db: Database, state: AttachmentState): AnyAttachment[] {
  return db
    .all("SELECT * FROM attachments WHERE state = ? ORDER BY created_ms, id", state)
    .map(anyAttachment);
}
