import { readFileSync } from "node:fs";
import { printable } from "../core/names.ts";
import { usage } from "./usage.ts";

interface EnvFlags {
  readonly env?: readonly string[];
  readonly envFile?: readonly string[];
}

/** podnet's own environment. */
type Own = Readonly<Record<string, string | undefined>>;

/** A program's environment: the lines of each `--env-file` in their order, then each `--env`. */
export function environmentOf({ env = [], envFile = [] }: EnvFlags, own: Own) {
  const files = envFile.map((file) => parseEnv("--env-file", linesOf(file), own));
  return Object.fromEntries([...files, parseEnv("--env", env, own)].flatMap(Object.entries));
}

/**
 * Parses variables as docker has them: `KEY` alone takes the value of `own`, and is left out if
 * there is none. Values are taken as they are, with quotes.
 */
export function parseEnv(flag: string, texts: readonly string[], own: Own): Record<string, string> {
  const pairs = texts.flatMap((text): [string, string][] => {
    const equals = text.indexOf("=");
    const key = equals < 0 ? text : text.slice(0, equals);
    if (key === "" || /\s/.test(key)) {
      throw usage(`${flag} "${printable(text)}" names no variable`, "Write KEY=VALUE or KEY");
    }
    const value = equals < 0 ? own[key] : text.slice(equals + 1);
    return typeof value === "string" ? [[key, value]] : [];
  });
  // (An assignment to an object's "__proto__" would be lost.)
  return Object.fromEntries(pairs);
}

/** Lines of a file, without comments and empty ones. */
function linesOf(file: string): string[] {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(readFileSync(file));
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    const why = code === "ERR_ENCODING_INVALID_ENCODED_DATA" ? "not UTF-8" : (code ?? "unknown");
    throw usage(`--env-file "${printable(file)}" cannot be read: ${why}`, "Give a text file");
  }
  return text
    .split(/\r?\n/)
    .map((line) => line.trimStart())
    .filter((line) => line !== "" && !line.startsWith("#"));
}
