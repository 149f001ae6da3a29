import type { Database } from "../store/database.ts";
import type { AttachmentId } from "../store/holder.ts";
import { text } from "../store/rows.ts";

/** The container that has a MAC on a network of podnet's. */
export function containerByMac(db: Database, mac: string): string | undefined {
  const row = db.get("SELECT container_id FROM attachments WHERE mac = ? LIMIT 1", mac);
  return row === undefined ? undefined : text(row, "container_id");
}

/**
 * The container of an attachment, by its runtime's id; undefined where there is no such attachment.
 */
export function containerOf(db: Database, id: AttachmentId): string | undefined {
  const row = db.get("SELECT container_id FROM attachments WHERE id = ?", id);
  return row === undefined ? undefined : text(row, "container_id");
}
