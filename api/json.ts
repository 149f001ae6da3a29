import {
  type DescField,
  type DescMessage,
  fromJson,
  fromJsonString,
  type JsonReadOptions,
  type JsonValue,
  type JsonWriteOptions,
  type MessageShape,
} from "@bufbuild/protobuf";
import { PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";
import { nearest } from "../core/nearest.ts";
import { toConnectError } from "./codes.ts";

type JsonObject = { readonly [key: string]: JsonValue };

const isObject = (value: JsonValue | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Letters alone, so that `memory-mib`, `memoryMiB` and `memory_mib` are seen as one word. */
const folded = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]/g, "");

function unknownField(key: string, path: string, desc: DescMessage): PodnetError {
  const names = desc.fields.map((field) => field.name);
  const meant =
    names.find((name) => folded(name) === folded(key) || folded(name) === `${folded(key)}s`) ??
    nearest(key, names);
  return new PodnetError("UNKNOWN_FIELD", `Field "${printable(path)}" does not exist`, {
    field: printable(path),
    hint:
      meant !== undefined
        ? `Write ${meant}`
        : names.length === 0
          ? "Leave it out; this message has no fields"
          : `Fields here are ${names.join(", ")}`,
  });
}

function checkField(field: DescField, value: JsonValue, path: string): void {
  if (field.fieldKind === "message") checkFields(field.message, value, path);
  if (field.fieldKind === "list" && field.listKind === "message" && Array.isArray(value)) {
    value.forEach((item, i) => {
      checkFields(field.message, item, `${path}[${i}]`);
    });
  }
}

/** Throws `UNKNOWN_FIELD`, with its full path, for a key the message has no field for. */
function checkFields(desc: DescMessage, json: JsonValue, path: string): void {
  // Timestamp and its like have JSON forms of their own.
  if (desc.typeName.startsWith("google.protobuf.") || !isObject(json)) return;
  for (const [key, value] of Object.entries(json)) {
    const here = path === "" ? key : `${path}.${key}`;
    const field = desc.fields.find((f) => f.jsonName === key || f.name === key);
    if (field === undefined) throw unknownField(key, here, desc);
    checkField(field, value, here);
  }
}

/**
 * Reads a message from JSON, where a field may be written as in the .proto file or in
 * lowerCamelCase. Throws `UNKNOWN_FIELD` or `INVALID_ARGUMENT`.
 */
export function readJson<Desc extends DescMessage>(
  desc: Desc,
  json: JsonValue,
): MessageShape<Desc> {
  if (!isObject(json)) {
    throw new PodnetError("INVALID_ARGUMENT", `Wanted an object with the fields of ${desc.name}`, {
      hint: `Fields are ${desc.fields.map(({ name }) => name).join(", ") || "none: write {}"}`,
    });
  }
  checkFields(desc, json, "");
  try {
    return fromJson(desc, json);
  } catch (cause) {
    throw misfit(cause);
  }
}

/**
 * Refuses what JSON.parse lets pass and protobuf-es does not: the same name twice in one object.
 */
function readAsText(desc: DescMessage, text: string): void {
  try {
    fromJsonString(desc, text);
  } catch (cause) {
    throw misfit(cause);
  }
}

/**
 * What protobuf-es 2.17 says, `cannot decode field podnet.v1.Interface.mtu from JSON: expected
 * …`, as an error of ours.
 */
function misfit(cause: unknown): PodnetError {
  const said = (cause as Error).message
    .replace(/^cannot decode (?:field|message|oneof) podnet\.v1\./, "")
    .replace(" from JSON: ", ": ")
    // What stands in quotes is the caller's; all else would be marred by escaping the quotes too.
    .replace(/\p{Cc}/gu, "\ufffd");
  const field = /^\w+\.(\w+): /.exec(said)?.[1];
  return new PodnetError("INVALID_ARGUMENT", said.slice(0, 240), {
    ...(field === undefined ? {} : { field }),
    hint: "See docs/reference/pod-spec.md for the fields",
    cause,
  });
}

/** Parses JSON text. Throws `INVALID_ARGUMENT`. */
export function parseJsonText(text: string): JsonValue {
  try {
    return JSON.parse(text) as JsonValue;
  } catch (cause) {
    throw new PodnetError("INVALID_ARGUMENT", `Not JSON: ${printable((cause as Error).message)}`, {
      hint: "Send one JSON object, with names and texts in double quotes",
      cause,
    });
  }
}

/**
 * Connect's JSON options for a method with this input. By default Connect 2.2 ignores unknown
 * fields, and answers a refused one without details; its serialization decodes the bytes through
 * `textDecoder` and passes on a ConnectError thrown there, which is where the typed error comes in.
 */
export function strictJson(input: DescMessage): Partial<JsonReadOptions & JsonWriteOptions> {
  const utf8 = new TextDecoder("utf-8", { fatal: true });
  const options = {
    ignoreUnknownFields: false,
    textDecoder: {
      decode(bytes: Uint8Array): string {
        try {
          const text = utf8.decode(bytes);
          readJson(input, parseJsonText(text));
          readAsText(input, text);
          return text;
        } catch (thrown) {
          throw toConnectError(
            thrown instanceof TypeError
              ? new PodnetError("INVALID_ARGUMENT", "The request is not UTF-8", {
                  hint: "Encode the JSON text as UTF-8",
                  cause: thrown,
                })
              : thrown,
          );
        }
      },
    },
  };
  return options;
}
