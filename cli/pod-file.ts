import { readFileSync } from "node:fs";
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
export async function readDocuments(file: string): Promise<readonly unknown[]> {
  const text = readText(file);
  const { parseAllDocuments } = await import("yaml");
  const documents = [...parseAllDocuments(text, { prettyErrors: true })];
  try {
    const [error] = documents.flatMap(({ errors }) => errors);
    if (error !== undefined) throw error;
    // Aliases could blow a small file up.
    return documents
      .map((each): unknown => each.toJS({ maxAliasCount: 100 }))
      .filter((value) => value !== null);
  } catch (cause) {
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `"${printable(file)}" is neither YAML nor JSON: ${(cause as Error).message.split("\n")[0]}`,
      { hint: "See docs/how-to/policies.md and docs/how-to/apply.md for files", cause },
    );
  }
}

/**
 * Reads a pod spec from a JSON or YAML file, `-` for standard input. The document is the spec
 * itself.
 */
export async function readPodFile(file: string): Promise<PodSpec> {
  const text = readText(file);
  const { parse } = await import("yaml");
  let value: JsonValue;
  try {
    // Every JSON document is a YAML document. Aliases could blow a small file up.
    value = parse(text, { maxAliasCount: 100, prettyErrors: true }) as JsonValue;
  } catch (cause) {
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `"${printable(file)}" is neither YAML nor JSON: ${(cause as Error).message.split("\n")[0]}`,
      { hint: "See docs/reference/pod-spec.md for a pod file", cause },
    );
  }
  return readJson(PodSpecSchema, value);
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

/** The text of a file of at most 1 MiB, `-` for standard input. */
export function readText(file: string): string {
  try {
    const bytes = readFileSync(file === "-" ? 0 : file);
    if (bytes.length <= maxBytes) return bytes.toString("utf8");
  } catch (cause) {
    const { code = "unknown" } = cause as NodeJS.ErrnoException;
    throw new PodnetError("INVALID_ARGUMENT", `"${printable(file)}" cannot be read (${code})`, {
      hint: "Name a file you may read, or - for standard input",
      details: { errno: code },
      cause,
    });
  }
  throw new PodnetError("INVALID_ARGUMENT", `"${printable(file)}" is larger than 1 MiB`, {
    hint: "Name a smaller file",
  });
}
