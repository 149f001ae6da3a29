import { isPodnetError } from "../../core/errors.ts";
import { cniError, refusal } from "./refusal.ts";

/**
 * Reading JSON as Go's runtimes and plugins do, for they are who writes it: a name in any letter
 * case (containerd sends Go's own field names), null is absent, booleans may be texts.
 */
export type JsonObject = Readonly<Record<string, unknown>>;

const wrong = (field: string, wanted: string) =>
  refusal(`${field} is not ${wanted}`, {
    cni: cniError.decode,
    field,
    hint: `Write ${wanted} there, or leave it out`,
  });

/**
 * The value of a member: of that very name, else of one that differs in letter case alone. Absent
 * and null: undefined.
 */
export function member(object: JsonObject, name: string): unknown {
  const lower = name.toLowerCase();
  const key = Object.hasOwn(object, name)
    ? name
    : Object.keys(object).find((key) => key.toLowerCase() === lower);
  return key === undefined ? undefined : (object[key] ?? undefined);
}

const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export function asObject(value: unknown, field: string): JsonObject {
  if (!isObject(value)) throw wrong(field, "an object");
  return value;
}

/** A member that is an object; absent: an empty one. */
export const objectAt = (object: JsonObject, name: string, field: string): JsonObject =>
  asObject(member(object, name) ?? {}, field);

/** A member that is a list; absent: an empty one. */
export function listAt(object: JsonObject, name: string, field: string): readonly unknown[] {
  const value = member(object, name) ?? [];
  if (!Array.isArray(value)) throw wrong(field, "a list");
  return value;
}

/** A text member; undefined when absent or empty, which Go does not distinguish either. */
export function textAt(object: JsonObject, name: string, field: string): string | undefined {
  const value = member(object, name);
  if (value === undefined || value === "") return undefined;
  if (typeof value !== "string") throw wrong(field, "a text");
  return value;
}

export const textsAt = (object: JsonObject, name: string, field: string): readonly string[] =>
  listAt(object, name, field).map((value, i) => {
    if (typeof value !== "string") throw wrong(`${field}[${i}]`, "a text");
    return value;
  });

/** A member that is a whole number from `least` to `most`; absent: undefined. */
export function countAt(
  object: JsonObject,
  name: string,
  field: string,
  least = 0,
  most: number = Number.MAX_SAFE_INTEGER,
): number | undefined {
  const value = member(object, name);
  if (value === undefined) return undefined;
  if (typeof value !== "number" || !Number.isInteger(value) || value < least || value > most)
    throw wrong(field, `a whole number from ${least} to ${most}`);
  return value;
}

/** A member that is true or false, or a text that says so; absent: false. */
export function flagAt(object: JsonObject, name: string, field: string): boolean {
  const value = member(object, name) ?? false;
  if (typeof value === "boolean") return value;
  const said = typeof value === "string" ? truth(value) : undefined;
  if (said === undefined) throw wrong(field, "true or false");
  return said;
}

/** Parses the texts that Go's strconv.ParseBool accepts; undefined for anything else. */
export function truth(text: string): boolean | undefined {
  if (["1", "t", "T", "true", "TRUE", "True"].includes(text)) return true;
  return ["0", "f", "F", "false", "FALSE", "False"].includes(text) ? false : undefined;
}

/** A text read by one of core's parsers: what that refuses is an error of the configuration. */
export function read<T>(
  text: string,
  field: string,
  parse: (text: string, field: string) => T,
  cni: number = cniError.config,
): T {
  try {
    return parse(text, field);
  } catch (thrown) {
    throw isPodnetError(thrown) ? thrown.with({ details: { cni } }) : thrown;
  }
}

/** `read` of a member that is a text; absent and empty: undefined. */
export function readAt<T>(
  object: JsonObject,
  name: string,
  field: string,
  parse: (text: string, field: string) => T,
): T | undefined {
  const text = textAt(object, name, field);
  return text === undefined ? undefined : read(text, field, parse);
}
