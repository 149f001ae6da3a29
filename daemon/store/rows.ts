// oxlint-disable typescript/no-unnecessary-type-parameters -- the type says what the column holds, which the schema keeps
import type { Row } from "./database.ts";

/** Readers of single columns: the schema is STRICT, so a wrong type means a damaged file. */
function column(row: Row, name: string): Row[string] {
  const value = row[name];
  if (value === undefined) throw new TypeError(`Column "${name}" is missing`);
  return value;
}

/** The schema's own parsers wrote these columns, so branded text is taken back as it is. */
export function text<T extends string = string>(row: Row, name: string): T {
  const value = column(row, name);
  if (typeof value !== "string") throw new TypeError(`Column "${name}" is not text`);
  return value as T;
}

export function optionalText<T extends string = string>(row: Row, name: string): T | undefined {
  return column(row, name) === null ? undefined : text<T>(row, name);
}

export function integer(row: Row, name: string): number {
  const value = column(row, name);
  if (typeof value !== "number") throw new TypeError(`Column "${name}" is not a number`);
  return value;
}

export function optionalInteger(row: Row, name: string): number | undefined {
  return column(row, name) === null ? undefined : integer(row, name);
}

export function json<T>(row: Row, name: string): T {
  return JSON.parse(text(row, name)) as T;
}

export function optionalJson<T>(row: Row, name: string): T | undefined {
  return column(row, name) === null ? undefined : json<T>(row, name);
}
