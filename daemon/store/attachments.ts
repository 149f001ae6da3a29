import type { Brand } from "../../core/brand.ts";
import type { NetworkName } from "../../core/names.ts";
import { type AttachmentPlan, parseStoredAttachment } from "../cni/attachment-plan.ts";
import type { Database, Row } from "./database.ts";
import { integer, text } from "./rows.ts";

/** A container's attachment to a network, as podnetd names it: 12 characters from a-z and 2-7. */
export type AttachmentId = Brand<string, "AttachmentId">;

/** `adding` and `deleting` are under way, or were cut short: the next start undoes the one and completes the other. */
export type AttachmentState = "adding" | "ready" | "deleting";

/** How a runtime names an attachment: what CNI says is the same from ADD to DEL. */
export interface AttachmentName {
  readonly containerId: string;
  readonly ifName: string;
}

export interface AttachmentRow extends AttachmentName {
  readonly id: AttachmentId;
  /** The name of the runtime's network configuration. */
  readonly config: string;
  readonly network: NetworkName;
  readonly netns: string;
  readonly state: AttachmentState;
  readonly plan: AttachmentPlan;
  readonly createdMs: number;
  readonly changedMs: number;
}

const fromRow = (row: Row): AttachmentRow => ({
  id: text<AttachmentId>(row, "id"),
  containerId: text(row, "container_id"),
  ifName: text(row, "if_name"),
  config: text(row, "config"),
  network: text<NetworkName>(row, "network"),
  netns: text(row, "netns"),
  state: text<AttachmentState>(row, "state"),
  plan: parseStoredAttachment(text(row, "plan")),
  createdMs: integer(row, "created_ms"),
  changedMs: integer(row, "changed_ms"),
});

/** Writes an attachment that is being added. */
export function insertAttachment(db: Database, plan: AttachmentPlan, nowMs: number): void {
  const { id, containerId, ifName, config, network, netns } = plan;
  db.run(
    `INSERT INTO attachments
       (id, container_id, if_name, config, network, netns, state, plan, created_ms, changed_ms)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'adding', ?7, ?8, ?8)`,
    id,
    containerId,
    ifName,
    config,
    network,
    netns,
    JSON.stringify(plan),
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

export function getAttachment(db: Database, id: AttachmentId): AttachmentRow | undefined {
  const row = db.get("SELECT * FROM attachments WHERE id = ?", id);
  return row === undefined ? undefined : fromRow(row);
}

/** The attachment that a runtime names so. */
export function attachmentNamed(
  db: Database,
  { containerId, ifName }: AttachmentName,
): AttachmentRow | undefined {
  const row = db.get(
    "SELECT * FROM attachments WHERE container_id = ? AND if_name = ?",
    containerId,
    ifName,
  );
  return row === undefined ? undefined : fromRow(row);
}

export const attachmentIds = (db: Database): Set<string> =>
  new Set(db.all("SELECT id FROM attachments").map((row) => text(row, "id")));

export function listAttachments(db: Database): AttachmentRow[] {
  return db.all("SELECT * FROM attachments ORDER BY created_ms, id").map(fromRow);
}

/** Those in a state, in the order they came: of nine hundred that are ready none is read to find one that is not. */
export function attachmentsIn(db: Database, state: AttachmentState): AttachmentRow[] {
  return db
    .all("SELECT * FROM attachments WHERE state = ? ORDER BY created_ms, id", state)
    .map(fromRow);
}

/** The containers on a network, by their ids, in order. */
export function containersOnNetwork(db: Database, network: NetworkName): string[] {
  return db
    .all(
      "SELECT DISTINCT container_id FROM attachments WHERE network = ? ORDER BY container_id",
      network,
    )
    .map((row) => text(row, "container_id"));
}

/** The container that has a MAC on a network of podnet's. */
export function containerByMac(db: Database, mac: string): string | undefined {
  const row = db.get(
    "SELECT container_id FROM attachments WHERE plan ->> '$.mac' = ? LIMIT 1",
    mac,
  );
  return row === undefined ? undefined : text(row, "container_id");
}
