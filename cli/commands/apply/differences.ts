import type { DescField, DescMessage, JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isIp, parseCidr, parseIp, parseIpPrefix, parseMac } from "../../../core/address.ts";
import type { Change } from "./item.ts";

/**
 * The fields of a message that a document names, and that are not as it says. What it does not name
 * may be anything. `wanted` and `found` are the messages' JSON with all fields present.
 */
export function differences(
  desc: DescMessage,
  named: JsonObject,
  wanted: JsonObject,
  found: JsonObject,
  path = "",
): Change[] {
  return desc.fields.flatMap((field) => {
    const key = [field.name, field.jsonName].find((each) => Object.hasOwn(named, each));
    if (key === undefined) return [];
    const at = path === "" ? field.name : `${path}.${field.name}`;
    const [is, becomes] = [found[field.jsonName], wanted[field.jsonName]];
    return ofField(field, named[key], becomes, is, at);
  });
}

function ofField(
  field: DescField,
  named: JsonValue | undefined,
  wanted: JsonValue | undefined,
  found: JsonValue | undefined,
  at: string,
): Change[] {
  if (field.fieldKind === "message" && isObject(named) && !isForeign(field.message))
    return differences(field.message, named, objectOf(wanted), objectOf(found), at);
  if (field.fieldKind === "list" && field.listKind === "message" && Array.isArray(named)) {
    const [will, is] = [listOf(wanted), listOf(found)];
    if (will.length === is.length)
      return named.flatMap((each, i) =>
        differences(
          field.message,
          objectOf(each),
          objectOf(will[i]),
          objectOf(is[i]),
          `${at}[${i}]`,
        ),
      );
  }
  if (isSame(wanted, found)) return [];
  const text = (value: JsonValue | undefined): string => textOf(asWritten(field, value));
  return [{ field: at, was: text(found), becomes: text(wanted) }];
}

/** A field's value with the names of a document, and without what says nothing. */
function asWritten(field: DescField, value: JsonValue | undefined): JsonValue | undefined {
  const { message } = field;
  if (field.fieldKind === "map" || message === undefined || isForeign(message)) return value;
  if (Array.isArray(value)) return value.map((each) => written(message, objectOf(each)));
  return isObject(value) ? written(message, value) : value;
}

function written({ fields }: DescMessage, value: JsonObject): JsonObject {
  const named = fields.flatMap((field): [string, JsonValue][] => {
    const is = asWritten(field, value[field.jsonName]);
    return is === undefined || isEmpty(field, is) ? [] : [[field.name, is]];
  });
  return Object.fromEntries(named);
}

/** Whether a document would leave it out. (64-bit numbers are text in JSON.) */
function isEmpty({ enum: values }: DescField, value: JsonValue): boolean {
  if (typeof value === "object" && value !== null) return Object.keys(value).length === 0;
  const zero = values?.values.find(({ number }) => number === 0)?.name;
  return [null, "", false, 0, "0", zero].includes(value);
}

const isForeign = ({ typeName }: DescMessage): boolean => typeName.startsWith("google.protobuf.");

const isObject = (value: JsonValue | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const objectOf = (value: JsonValue | undefined): JsonObject => (isObject(value) ? value : {});

const listOf = (value: JsonValue | undefined): readonly JsonValue[] =>
  Array.isArray(value) ? value : [];

/** Whether two values are one, whichever way addresses in them are written. */
export function isSame(a: JsonValue | undefined, b: JsonValue | undefined): boolean {
  if (typeof a === "string" && typeof b === "string") return a === b || usual(a) === usual(b);
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((each, i) => isSame(each, b[i]));
  if (!isObject(a) || !isObject(b)) return a === b;
  const keys = Object.keys(a);
  return (
    keys.length === Object.keys(b).length &&
    keys.every((key) => Object.hasOwn(b, key) && isSame(a[key], b[key]))
  );
}

const forms = [parseIpPrefix, parseCidr, parseMac] as const;

/** An address as podnetd writes it; all else as it is. */
function usual(text: string): string {
  if (isIp(text)) return parseIp(text);
  for (const parse of forms) {
    try {
      return parse(text);
    } catch {
      // It is something else.
    }
  }
  return text;
}

/** A value in one line, for people. */
export function textOf(value: JsonValue | undefined): string {
  if (value === undefined || value === null) return "";
  if (typeof value === "string") return value === "" ? '""' : value;
  return JSON.stringify(value);
}
