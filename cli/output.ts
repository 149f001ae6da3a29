import { type DescMessage, type JsonValue, type MessageShape, toJson } from "@bufbuild/protobuf";
import type { Io } from "./io.ts";
import { parseTemplate } from "./jsonpath/parse.ts";
import { textOfTemplate } from "./jsonpath/print.ts";
import { harmless } from "./views/text.ts";

const jsonpath = "jsonpath=";

/** How documents are printed; the text behind `jsonpath=` is a template. */
export type DocumentFormat = "json" | "yaml" | `${typeof jsonpath}${string}`;

export type Format = "table" | DocumentFormat;

/** Whether `-o` asks for a template, which is checked before podnetd is asked anything. */
export function isTemplate(format: string): format is `${typeof jsonpath}${string}` {
  if (!format.startsWith(jsonpath)) return false;
  parseTemplate(format.slice(jsonpath.length));
  return true;
}

/**
 * Keys whose values are enums of podnet.v1, which programs get as `running`, not
 * `POD_STATE_RUNNING`.
 */
const enumPrefix = /^(?:POD_STATE|INTERFACE_STATE|OVERLAY_PHASE|STATUS|KIND)_/;

const enumKeys: ReadonlySet<string> = new Set(["state", "phase", "status", "kind"]);

function plain(json: JsonValue): JsonValue {
  if (Array.isArray(json)) return json.map(plain);
  if (typeof json !== "object" || json === null) return json;
  return Object.fromEntries(
    Object.entries(json).map(([key, value]) => {
      const isEnum = enumKeys.has(key);
      if (isEnum && typeof value === "string" && enumPrefix.test(value)) {
        return [key, value.replace(enumPrefix, "").toLowerCase()];
      }
      return [key, plain(value)];
    }),
  );
}

/**
 * A message as programs see it: the API's JSON with every field present and enums in short lower
 * case.
 */
export function toPlain<Desc extends DescMessage>(
  desc: Desc,
  message: MessageShape<Desc>,
): { [key: string]: JsonValue } {
  return plain(toJson(desc, message, { alwaysEmitImplicit: true })) as { [key: string]: JsonValue };
}

/**
 * The envelope of everything that `-o json` and `-o yaml` print; the version changes when a field
 * goes or changes.
 */
export const document = (
  kind: string,
  body: { readonly [key: string]: JsonValue },
): { [key: string]: JsonValue } => ({ apiVersion: "podnet.v1", kind, ...body });

/**
 * Writes one document. `lines` keeps JSON on one line and separates YAML documents, for streams.
 */
export async function printDocument(
  io: Io,
  format: DocumentFormat,
  value: JsonValue,
  lines = false,
): Promise<void> {
  if (format === "json") {
    io.stdout.write(`${JSON.stringify(value, undefined, lines ? 0 : 2)}\n`);
    return;
  }
  if (isTemplate(format)) {
    const isTerminal = io.stdout.isTTY === true;
    const parts = parseTemplate(format.slice(jsonpath.length));
    const text = textOfTemplate(parts, value, isTerminal ? harmless : undefined);
    // (As kubectl does, without a line end of its own; a prompt is to begin a line.)
    io.stdout.write(isTerminal && !text.endsWith("\n") ? `${text}\n` : text);
    return;
  }
  const { stringify } = await import("yaml");
  io.stdout.write(`${lines ? "---\n" : ""}${stringify(value)}`);
}
