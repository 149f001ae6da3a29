import { readFileSync } from "node:fs";
import { parse as parseToml, TomlError } from "smol-toml";
import type * as z from "zod";
import { PodnetError } from "../../core/errors.ts";
import { nearest } from "../../core/nearest.ts";
import { printable } from "../../core/names.ts";
import { type ConfigKey, configKeys, fileSchema } from "./schema.ts";

/** A value and where it was written: `default`, a file, `PODNET_X` or `--x`. */
export interface Setting {
  readonly value: unknown;
  readonly origin: string;
}

/** Settings by dotted key. */
export type Layer = ReadonlyMap<string, Setting>;

/** `CONFIG_INVALID` about one key; the message names key, value's origin and what is wrong. */
export function configError(
  key: string,
  origin: string,
  problem: string,
  hint: string,
  cause?: unknown,
): PodnetError {
  return new PodnetError("CONFIG_INVALID", `Setting "${key}" from ${origin} ${problem}`, {
    field: key,
    hint,
    details: { key, origin },
    ...(cause === undefined ? {} : { cause }),
  });
}

function wanted(key: ConfigKey): string {
  if (key.kind === "choice") return `one of ${key.choices.join(", ")}`;
  if (key.kind === "boolean") return "true or false";
  if (key.kind === "integer") return "a whole number";
  if (key.kind === "list") return "a list of texts";
  return "a text";
}

/** Keys, and the tables they stand in. */
const names = [...new Set(configKeys.flatMap(({ key }) => [key, ...key.split(".").slice(0, -1)]))];

/** What is said of a number out of its bounds; undefined for another issue. */
const boundText = (issue: z.core.$ZodIssue): string | undefined => {
  if (issue.code === "too_small" && issue.origin !== "string" && issue.origin !== "array")
    return `is too small: it is ${issue.minimum} at least`;
  if (issue.code === "too_big" && issue.origin !== "string" && issue.origin !== "array")
    return `is too large: it is ${issue.maximum} at most`;
  return undefined;
};

function issueError(issue: z.core.$ZodIssue, origin: string): PodnetError {
  const path = issue.path.map(String);
  if (issue.code === "unrecognized_keys") {
    const key = [...path, issue.keys[0] ?? ""].join(".");
    const elsewhere = configKeys.find(({ key: known }) =>
      known.endsWith(key.slice(key.indexOf(".") + 1)),
    )?.key;
    const near = elsewhere ?? nearest(key, names);
    return configError(
      printable(key),
      origin,
      "is not known",
      near === undefined || near === key
        ? "Run `podnetd --help` for the keys there are"
        : `Did you mean ${near}?`,
    );
  }
  const dotted = path.filter((part) => !/^\d+$/.test(part)).join(".");
  const key = configKeys.find((known) => known.key === dotted);
  return configError(
    dotted,
    origin,
    boundText(issue) ?? `is not usable: ${issue.message.replace(/^Invalid input: /, "")}`,
    key === undefined ? "Write it as a table" : `Write ${wanted(key)}. ${key.help}`,
  );
}

/** The file's settings; an absent file has none, and is an error if `required`. */
export function fileLayer(path: string, required: boolean): Layer {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    if (!required && (cause as NodeJS.ErrnoException).code === "ENOENT") return new Map();
    throw new PodnetError("CONFIG_INVALID", `Configuration file "${path}" is not readable`, {
      hint: "Check that the file is there and its permissions, or leave --config out",
      cause,
    });
  }
  return parseLayer(text, path);
}

/** Settings from the text of a file; `origin` is named in errors. */
export function parseLayer(text: string, origin: string): Layer {
  let tree: unknown;
  try {
    tree = parseToml(text);
  } catch (cause) {
    const where = cause instanceof TomlError ? `${origin}:${cause.line}:${cause.column}` : origin;
    throw new PodnetError("CONFIG_INVALID", `Configuration file ${where} is not TOML`, {
      hint: 'Write lines such as: state_dir = "/var/lib/podnet"',
      cause,
    });
  }
  const parsed = fileSchema.safeParse(tree);
  if (!parsed.success) throw issueError(parsed.error.issues[0] as z.core.$ZodIssue, origin);
  const layer = new Map<string, Setting>();
  for (const { key } of configKeys) {
    const value = key
      .split(".")
      .reduce<unknown>(
        (at, part) => (at as Record<string, unknown> | undefined)?.[part],
        parsed.data,
      );
    if (value !== undefined) layer.set(key, { value, origin });
  }
  return layer;
}

/**
 * A value out of text, by the kind of its key; what does not convert is left for the schema to
 * refuse.
 */
function fromText(key: ConfigKey, text: string): unknown {
  if (key.kind === "integer") return /^-?\d+$/.test(text) ? Number(text) : text;
  if (key.kind === "boolean") {
    return text === "true" || text === "1" ? true : text === "false" || text === "0" ? false : text;
  }
  if (key.kind === "list") return text === "" ? [] : text.split(",").map((part) => part.trim());
  return text;
}

function textLayer(values: Iterable<readonly [ConfigKey, string, string]>): Layer {
  const layer = new Map<string, Setting>();
  for (const [key, origin, text] of values) {
    const parsed = key.schema.safeParse(fromText(key, text));
    if (!parsed.success) {
      const issue = parsed.error.issues[0] as z.core.$ZodIssue;
      throw issueError({ ...issue, path: key.key.split(".") }, origin);
    }
    layer.set(key.key, { value: parsed.data, origin });
  }
  return layer;
}

/** Settings from `PODNET_*` variables. An empty variable counts as unset. */
export function envLayer(env: Readonly<Record<string, string | undefined>>): Layer {
  return textLayer(
    configKeys.flatMap((key) => {
      const text = env[key.env];
      return text === undefined || text === "" ? [] : [[key, key.env, text] as const];
    }),
  );
}

/** Settings from flags, given by dotted key. */
export function flagLayer(flags: ReadonlyMap<string, string>): Layer {
  return textLayer(
    configKeys.flatMap((key) => {
      const text = flags.get(key.key);
      return text === undefined ? [] : [[key, key.flag, text] as const];
    }),
  );
}
