import { PodnetError } from "../../core/errors.ts";

/**
 * The fields of a JSON object by their names in lower case, because Go, and therefore flannel,
 * ignores case.
 */
export type Fields = ReadonlyMap<string, unknown>;

/**
 * Reads an object's fields; undefined if the value is no object. A null field counts as absent, as
 * in Go.
 */
export function fieldsOf(value: unknown): Fields | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  return new Map(
    Object.entries(value)
      .filter(([, field]) => field !== null)
      .map(([name, field]) => [name.toLowerCase(), field]),
  );
}

/** The parsed JSON; undefined if the text is not JSON. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** A configuration refused: `rule` names which of flannel's rules it breaks. */
export const broken = (rule: string, field: string, message: string, hint: string): PodnetError =>
  new PodnetError("OVERLAY_CONFIG_INVALID", message, { field, hint, details: { rule } });

const wrongType = (field: string, wanted: string): PodnetError =>
  broken("type", field, `${field} is not ${wanted}`, `Write ${wanted}, or leave ${field} out`);

/** A field of the configuration that is true or false. */
export function flagOf(fields: Fields, field: string, otherwise: boolean): boolean {
  const value = fields.get(lastPart(field)) ?? otherwise;
  if (typeof value !== "boolean") throw wrongType(field, "true or false");
  return value;
}

/** A text of the configuration; "" when it is not given. */
export function textOf(fields: Fields, field: string): string {
  const value = fields.get(lastPart(field)) ?? "";
  if (typeof value !== "string") throw wrongType(field, "a text");
  return value;
}

/** A whole number of the configuration, within bounds. */
export function wholeOf(
  fields: Fields,
  field: string,
  otherwise: number,
  [least, most]: readonly [number, number],
): number {
  const value = fields.get(lastPart(field)) ?? otherwise;
  if (typeof value !== "number" || !Number.isSafeInteger(value))
    throw wrongType(field, "a whole number");
  if (value >= least && value <= most) return value;
  throw broken(
    "range",
    field,
    `${field} is ${value}`,
    `Write a number from ${least} to ${most}, or leave ${field} out`,
  );
}

/** `Backend.VNI` is the field `vni`. */
const lastPart = (field: string): string => field.slice(field.lastIndexOf(".") + 1).toLowerCase();

/**
 * JSON as Go's encoder writes it: HTML's characters and line separators escaped, lone surrogates
 * replaced.
 */
export const goJson = (value: unknown): string =>
  JSON.stringify(value, (_, part: unknown) =>
    typeof part === "string" ? part.toWellFormed() : part,
  ).replaceAll(/[<>&\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
