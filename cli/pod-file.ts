import { isUtf8 } from "node:buffer";
import { closeSync, openSync, readSync } from "node:fs";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { type PodSpec, PodSpecSchema } from "../api/gen/podnet/v1/pod_spec_pb.ts";
import { readJson } from "../api/json.ts";
import { PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";

const maxBytes = 1 << 20;

/**
 * Reads the documents of a JSON or YAML file, `-` for standard input; `---` stands between those of
 * YAML. Throws `INVALID_ARGUMENT`.
 */
export const readDocuments = (file: string): Promise<readonly JsonValue[]> =>
  parseDocuments(file, "See docs/how-to/policies.md and docs/how-to/apply.md for files");

/**
 * Reads a pod spec from a JSON or YAML file, `-` for standard input. The document is the spec
 * itself.
 */
export async function readPodFile(file: string): Promise<PodSpec> {
  const [spec, ...others] = await parseDocuments(file, "See docs/reference/pod-spec.md for a file");
  if (spec !== undefined && others.length === 0) return readJson(PodSpecSchema, spec);
  const what = spec === undefined ? "has no document" : "has more than one document";
  throw new PodnetError("INVALID_ARGUMENT", `"${printable(file)}" ${what}`, {
    hint: "Write one pod; `podnet apply -f` takes several, each with its kind",
  });
}

/** Every JSON document is a YAML document. Empty documents are left out. */
async function parseDocuments(file: string, hint: string): Promise<readonly JsonValue[]> {
  const text = readText(file);
  const { isScalar, parseAllDocuments, visit } = await import("yaml");
  try {
    // The package compares each key with each other one to find those that are there twice, which
    // takes minutes for a map of 60,000.
    const documents = [...parseAllDocuments(text, { prettyErrors: true, uniqueKeys: false })];
    for (const document of documents) {
      const [error] = document.errors;
      if (error !== undefined) throw error;
      visit(document, {
        Map(_position, { items }) {
          const seen = new Set<string>();
          for (const { key } of items) {
            const name = isScalar(key) ? String(key.value) : undefined;
            if (name !== undefined && seen.has(name))
              throw new Error(`the key "${printable(name)}" is there twice in one map`);
            if (name !== undefined) seen.add(name);
          }
        },
      });
    }
    return (
      documents
        // Aliases could blow a small file up.
        .map((each) => jsonOf(each.toJS({ maxAliasCount: 100 })))
        .filter((value) => value !== null)
    );
  } catch (cause) {
    const why = cause instanceof RangeError ? tooDeep : (cause as Error).message;
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `"${printable(file)}" is neither YAML nor JSON: ${why.split("\n")[0]?.replace(/:$/, "")}`,
      { hint, cause },
    );
  }
}

/** Deeper than any document that podnet reads. */
const deepest = 100;
const tooDeep = `it is nested more than ${deepest} times, or a part contains itself`;

/** YAML has values that JSON lacks: bytes, infinite numbers, parts that contain themselves. */
function jsonOf(value: unknown, depth = 0): JsonValue {
  if (depth > deepest) throw new Error(tooDeep);
  if (value === null || typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "number" && Number.isFinite(value)) return value;
  if (Array.isArray(value)) return value.map((each) => jsonOf(each, depth + 1));
  if (typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype)
    return Object.fromEntries(
      Object.entries(value).map(([key, each]) => [key, jsonOf(each, depth + 1)]),
    );
  throw new Error(`${typeof value === "number" ? String(value) : "a tagged value"} is not of JSON`);
}

/**
 * Reads rules of a pod's or network's own from a JSON or YAML file, `-` for standard input: what a
 * policy file has without `name` and `applies_to`. podnetd checks them. Throws `INVALID_ARGUMENT`.
 */
export async function readRulesFile(file: string): Promise<JsonObject> {
  const [rules, ...others] = await readDocuments(file);
  if (typeof rules === "object" && rules !== null && others.length === 0)
    return rules as JsonObject;
  throw new PodnetError("INVALID_ARGUMENT", `"${printable(file)}" is no list of rules`, {
    hint: "Write default, rules or ingress: see docs/how-to/policies.md",
  });
}

/** The text of a file of at most 1 MiB, `-` for standard input. Throws `INVALID_ARGUMENT`. */
export function readText(file: string): string {
  const bytes = readStart(file);
  if (bytes.length > maxBytes)
    throw new PodnetError("INVALID_ARGUMENT", `"${printable(file)}" is larger than 1 MiB`, {
      hint: "Name a smaller file",
    });
  if (isUtf8(bytes)) return bytes.toString("utf8");
  throw new PodnetError("INVALID_ARGUMENT", `"${printable(file)}" is not text in UTF-8`, {
    hint: "Save it as UTF-8",
  });
}

/** The file, or what is at its beginning: a device or a pipe may never end. */
function readStart(file: string): Buffer {
  try {
    const descriptor = file === "-" ? 0 : openSync(file, "r");
    try {
      const bytes = Buffer.alloc(maxBytes + 1);
      let length = 0;
      for (let got = -1; got !== 0 && length < bytes.length; length += got)
        got = readSync(descriptor, bytes, length, bytes.length - length, null);
      return bytes.subarray(0, length);
    } finally {
      if (descriptor !== 0) closeSync(descriptor);
    }
  } catch (cause) {
    const { code = "unknown" } = cause as NodeJS.ErrnoException;
    throw new PodnetError("INVALID_ARGUMENT", `"${printable(file)}" cannot be read (${code})`, {
      hint: "Name a file you may read, or - for standard input",
      details: { errno: code },
      cause,
    });
  }
}
