import type { Database } from "./database.ts";
import { text } from "./rows.ts";

/** Single values the daemon remembers. */
export type MetaKey =
  | "boot_id"
  /** How many commits there were, this one included; see `CommitMark`. */
  | "commits"
  | "network_memory"
  /** The firewall driver in use, which `auto` stays with. */
  | "firewall"
  | "names_told"
  | "cni_installed"
  /** Pods of other hosts that were backends of services, for a start without etcd. */
  | "remote_backends"
  | `overlay ${string}`
  | `peers of ${string}`;

export function getMeta(db: Database, key: MetaKey): string | undefined {
  const row = db.get("SELECT value FROM meta WHERE key = ?", key);
  return row === undefined ? undefined : text(row, "value");
}

export function setMeta(db: Database, key: MetaKey, value: string): void {
  db.run(
    "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    key,
    value,
  );
}

/** Absent is success. */
export function deleteMeta(db: Database, key: MetaKey): void {
  db.run("DELETE FROM meta WHERE key = ?", key);
}
