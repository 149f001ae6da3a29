import type { Migration } from "./migrations.ts";
import { existsSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { perform } from "../../core/effect.ts";
import type { Row } from "./rows.ts";
import { bootId } from "../../linux/processes/proc.ts";
import { commitsIn, refuseLost, refuseUnfitConnection } from "./found.ts";
import { unwritableError } from "./sqlite-error.ts";

/**
 * Opens a database where neither of SQLite's two files can be made. Without a log the database is
 * whole by itself, and is read as if it could not change; alongside a log the index is kept in
 * memory, which one process alone may do. Throws what SQLite does, `STATE_UNWRITABLE` when there is
 * no database or it is an older one.
 */
export function connectWithoutRoom(path: string, steps: readonly Migration[]): DatabaseSync {
  if (!existsSync(path)) throw unwritableError(new Error("the filesystem is full"));
  const alone = !existsSync(`${path}-wal`);
  const connection = alone
    ? new DatabaseSync(`${pathToFileURL(path).href}?immutable=1`, { readOnly: true })
    : new DatabaseSync(path);
  const locking = alone ? "NORMAL" : "EXCLUSIVE";
  try {
    perform("commit", "open without room", () =>
      connection.exec(`PRAGMA locking_mode = ${locking}; PRAGMA foreign_keys = ON`),
    );
    refuseUnfitConnection(connection, path, steps.length);
    refuseLost(path, commitsIn(connection), bootId());
    const { user_version: version } = connection.prepare("PRAGMA user_version").get() as Row;
    if (version !== steps.length) throw unwritableError(new Error("the state is to be upgraded"));
    return connection;
  } catch (cause) {
    connection.close();
    throw cause;
  }
}
