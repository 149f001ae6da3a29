import type { Database } from "../store/database.ts";
import { integer, parseJson, type Row, text } from "../store/rows.ts";

/** A policy as it was applied. */
export interface PolicyRow {
  readonly name: string;
  /** The file's contents: plain JSON. */
  readonly document: unknown;
  readonly createdMs: number;
}

const fromRow = (row: Row): PolicyRow => ({
  name: text(row, "name"),
  document: parseJson(text(row, "document"), "a policy"),
  createdMs: integer(row, "created_ms"),
});

/** All policies, by name. */
export const listPolicies = (db: Database): readonly PolicyRow[] =>
  db.all("SELECT * FROM policies ORDER BY name").map(fromRow);

/** Writes a new policy, or replaces one, which keeps its time of creation. */
export function putPolicy(db: Database, name: string, document: unknown, nowMs: number): void {
  db.run(
    `INSERT INTO policies (name, document, created_ms) VALUES (?, ?, ?)
     ON CONFLICT (name) DO UPDATE SET document = excluded.document`,
    name,
    JSON.stringify(document),
    nowMs,
  );
}

export const deletePolicy = (db: Database, name: string): void => {
  db.run("DELETE FROM policies WHERE name = ?", name);
};
