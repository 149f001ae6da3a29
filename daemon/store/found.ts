import type { Migration } from "./migrations.ts";
import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync, statSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { perform } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { markOf, readMark } from "./commit-mark.ts";

/** Tables that podnet's state has had since its first schema. */
const lasting = ["meta", "networks", "pods", "leases"] as const;

/**
 * Refuses a file that is not podnet's state, or is damaged or newer, while nothing of it can
 * change: it is opened for reading alone, since merely to set the journal mode writes into it, and
 * to close it may copy its log.
 */
export function refuseUnfit(file: string, known: number): void {
  // Ours is never empty: see `makeNew`. SQLite would take it for a new one, and pods for machines
  // without a record.
  if (statSync(file).size === 0) throw new Error("the file is empty");
  const found = new DatabaseSync(file, { readOnly: true });
  using _found = { [Symbol.dispose]: () => found.close() };
  refuseUnfitConnection(found, file, known);
}

/** As above, for a database that is open and not written to meanwhile. */
export function refuseUnfitConnection(found: DatabaseSync, file: string, known: number): void {
  const check = found.prepare("PRAGMA quick_check(1)").get() as { quick_check: string };
  if (check.quick_check !== "ok") throw new Error(check.quick_check);
  const version = schemaVersion(found);
  if (version > known) {
    throw new PodnetError(
      "STATE_NEWER",
      `State "${file}" has schema ${version}, this podnetd knows up to ${known}`,
      {
        hint: "Run the podnetd that wrote it, or a newer one",
        details: { found: version, known },
      },
    );
  }
  const tables = new Set(
    found
      .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
      .all()
      .map(({ name }) => name),
  );
  if (version === 0 || lasting.some((table) => !tables.has(table)))
    throw new Error("the file is another program's database");
}

/** Hint for a node whose state is damaged or outdated. */
export const salvageHint =
  "Machines run on. `podnetd state` shows what there is; `podnetd state adopt` goes on with it and takes the machines that run back into it, `podnetd state remove` ends those that it does not know";

/**
 * Refuses a state that has fewer commits than this boot has seen: its log was cut, damaged or
 * deleted, or an older one was put in its place. By it machines would be ended that run. Nothing of
 * it is changed. Throws `STATE_CORRUPT`.
 */
export function refuseLost(file: string, commits: number, bootId: string): void {
  const wanted = readMark(file, bootId);
  if (wanted === undefined) return;
  if (commits >= wanted) return;
  throw new PodnetError(
    "STATE_CORRUPT",
    `State "${file}" has ${commits} commits, and had ${wanted}: its log was damaged or deleted, or it is an older copy`,
    { hint: salvageHint, details: { found: commits, wanted } },
  );
}

/** How many commits a database has had, those of a podnetd that did not count left out. */
export function commitsIn(connection: DatabaseSync): number {
  const row = connection.prepare("SELECT value FROM meta WHERE key = 'commits'").get();
  return row === undefined ? 0 : Number(row["value"]);
}

/** As above, for a database that is not in use. Throws what SQLite throws. */
export function commitsOf(file: string): number {
  const found = new DatabaseSync(file, { readOnly: true });
  using _found = { [Symbol.dispose]: () => found.close() };
  return commitsIn(found);
}

/**
 * Makes the state of a new node. It gets its name when it is whole: what has the name and is not
 * whole has been damaged since, and is refused.
 */
export function makeNew(file: string, steps: readonly Migration[]): void {
  // A log without its database: with a new one alongside it SQLite would take the one for the
  // other's.
  if (existsSync(`${file}-wal`) && statSync(`${file}-wal`).size > 0)
    throw new Error("the file is missing, and its log is there");
  const fresh = `${file}.new`;
  perform("file", "make state database", () => {
    // The mark of one that was moved away says nothing about this one.
    for (const left of [fresh, `${fresh}-journal`, markOf(file)]) rmSync(left, { force: true });
    const made = new DatabaseSync(fresh);
    try {
      made.exec("PRAGMA synchronous = FULL");
      upgrade(made, steps);
    } finally {
      made.close();
    }
    renameSync(fresh, file);
    const directory = openSync(path.dirname(file), "r");
    fsyncSync(directory);
    closeSync(directory);
  });
}

/** Takes the steps of the schema that a database has not taken yet, each whole or not at all. */
export function upgrade(connection: DatabaseSync, steps: readonly Migration[]): void {
  for (let next = schemaVersion(connection); next < steps.length; next++) {
    const step = steps[next];
    perform("commit", `schema ${next + 1}`, () => {
      connection.exec("BEGIN IMMEDIATE");
      if (typeof step === "function") step(connection);
      else connection.exec(step ?? "");
      connection.exec(`PRAGMA user_version = ${next + 1}; COMMIT`);
    });
  }
}

function schemaVersion(connection: DatabaseSync): number {
  const row = connection.prepare("PRAGMA user_version").get() as { user_version: number };
  return row.user_version;
}
