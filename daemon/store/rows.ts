import type { SQLOutputValue } from "node:sqlite";
// oxlint-disable typescript/no-unnecessary-type-parameters -- the schema keeps the type
import { PodnetError } from "../../core/errors.ts";

/** One row of an answer, by the names of its columns. */
export type Row = Record<string, SQLOutputValue>;

/** A row that is not as podnetd writes it: `STATE_CORRUPT`. */
export function damaged(what: string, cause?: unknown): PodnetError {
  return new PodnetError("STATE_CORRUPT", `The state database is damaged: ${what}`, {
    hint: "Restore it from a backup; or stop the pods, move the file away and start anew. podnetd never deletes it",
    details: { damaged: what },
    ...(cause === undefined ? {} : { cause }),
  });
}

/**
 * Readers of single columns: the schema is STRICT, so a wrong type means a damaged file. Throw
 * `STATE_CORRUPT`.
 */
function column(row: Row, name: string): Row[string] {
  const value = row[name];
  if (value === undefined) throw damaged(`column "${name}" is missing`);
  return value;
}

/** The schema's own parsers wrote these columns, so branded text is read without a check. */
export function text<T extends string = string>(row: Row, name: string): T {
  const value = column(row, name);
  if (typeof value !== "string") throw damaged(`column "${name}" is not text`);
  return value as T;
}

export function optionalText<T extends string = string>(row: Row, name: string): T | undefined {
  return column(row, name) === null ? undefined : text<T>(row, name);
}

export function integer(row: Row, name: string): number {
  const value = column(row, name);
  if (typeof value !== "number") throw damaged(`column "${name}" is not a number`);
  return value;
}

export function optionalInteger(row: Row, name: string): number | undefined {
  return column(row, name) === null ? undefined : integer(row, name);
}

export function json<T>(row: Row, name: string): T {
  return parseJson(text(row, name), `column "${name}"`) as T;
}

/** Parses stored JSON. Throws `STATE_CORRUPT`. */
export function parseJson(text: string, what: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    throw damaged(`${what} is not JSON`, cause);
  }
}

export function optionalJson<T>(row: Row, name: string): T | undefined {
  return column(row, name) === null ? undefined : json<T>(row, name);
}
