import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { asObject, type JsonObject, member, textAt } from "../protocol/json.ts";
import type { CniResult } from "../protocol/result.ts";
import { parseResult } from "../protocol/result-read.ts";
import type { CniVersion } from "../protocol/version.ts";

/**
 * The result of ADD: in podnet's form, and as the plugin wrote it, to be passed on unchanged to the
 * next plugin.
 */
export interface PluginResult {
  readonly value: CniResult;
  readonly written: JsonObject;
}

/**
 * Reads what a plugin printed at the end of an ADD that succeeded. Throws `INVALID_ARGUMENT` or
 * `UNSUPPORTED`.
 */
export function parseAnswer(stdout: string, version: CniVersion): PluginResult {
  const written = asObject(decodeJson(stdout), "result");
  // As libcni does where a plugin has left it out, or written it in other letters.
  const named = textAt(written, "cniVersion", "result.cniVersion");
  return {
    value: parseResult(written, version),
    written: { ...written, cniVersion: named ?? version },
  };
}

/**
 * Parses the output of a plugin that failed: its error number and message. Undefined when it is not
 * an error of CNI's form.
 */
export function parsePluginError(
  stdout: string,
): { readonly code: number; readonly message: string; readonly details: string } | undefined {
  let value: unknown;
  try {
    value = JSON.parse(stdout);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const object = value as JsonObject;
  const [code, message, details] = ["code", "msg", "details"].map((name) => member(object, name));
  if (typeof code !== "number" || typeof message !== "string") return undefined;
  return { code, message, details: typeof details === "string" ? details : "" };
}

function decodeJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `The plugin's answer is not JSON: ${printable(text)}`,
      {
        hint: "Look at the plugin: it is to print its result, and nothing else, on standard output",
        field: "result",
        cause,
      },
    );
  }
}
