import type { JsonValue } from "@bufbuild/protobuf";

/** What stands in the place of a secret. */
const redacted = "[redacted]";

/** Keys, variables and flags whose values are secret, wherever they stand in the name. */
const secretWord =
  "(?:pass(?:wd|word|phrase)?|secret|token|credential|api[-_.]?key|access[-_.]?key|private[-_.]?key|authorization|cookie|session)";
/** (Lengths are limited, here and below: a hostile text must not take time by its square.) */
const secretName = `[\\w.-]{0,64}${secretWord}[\\w.-]{0,64}`;

/** Maps whose values are all secret, or may be, whatever their keys are. */
const secretMaps: ReadonlySet<string> = new Set(["env", "environment"]);

/** Values that are what a user gave a guest: programs' arguments, files, configuration. */
const secretValues: ReadonlySet<string> = new Set([
  "args",
  "argv",
  "cmd",
  "command",
  "content",
  "contents",
  "data",
  "userdata",
  "user_data",
]);

const isSecretName = new RegExp(secretWord, "i");

/** (The only secret of several lines.) */
const privateKey =
  /-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|$)/g;

/** By their looks, in any text. */
const patterns: readonly (readonly [RegExp, string])[] = [
  [privateKey, redacted],
  // (Up to the last @ of the authority, as a password may have one.)
  [/\b([a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/"'<>]*@/gi, `$1${redacted}@`],
  [/\b(Bearer|Basic|Digest)\s+[\w+/=.~-]{6,}/gi, `$1 ${redacted}`],
  [/\beyJ[\w-]{5,999}\.[\w-]{5,9999}\.[\w-]*/g, redacted],
  [/\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g, redacted],
  [/\b(?:gh[opsu]|glpat|xox[abps]|sk)[-_][\w-]{16,}/g, redacted],
  // KEY=VALUE, key: value, "key":"value", with quotes of several depths, closed or not.
  [
    new RegExp(
      `(${secretName}(?:\\\\{0,9}["'])?\\s{0,9}[=:]\\s{0,9})(?:${[
        '"(?:\\\\[^]|[^"\\\\])*"?',
        "'(?:\\\\[^]|[^'\\\\])*'?",
        `(\\\\{1,9}["'])[^]*?(?:\\2|$)`,
        "\\[[^\\]]{0,4096}\\]",
        `[^\\s,;&"'}\\]]+`,
      ].join("|")})`,
      "gi",
    ),
    `$1${redacted}`,
  ],
  [new RegExp(`(--?${secretName}\\s{1,9})(?!-)\\S+`, "gi"), `$1${redacted}`],
];

/** A text without what looks like a secret. */
export function redactText(text: string): string {
  let kept = text;
  for (const [pattern, instead] of patterns) kept = kept.replaceAll(pattern, instead);
  return kept;
}

/** Lines, of which some are JSON, as a log has them. Each is judged alone, damaged ones too. */
export const redactLines = (text: string): string =>
  text.replaceAll(privateKey, redacted).split("\n").map(redactLine).join("\n");

function redactLine(line: string): string {
  try {
    if (line.startsWith("{")) return JSON.stringify(redactJson(JSON.parse(line)));
  } catch {}
  return redactText(line);
}

/** JSON without the values of secret keys, of environments, and of what guests were given. */
export function redactJson(json: JsonValue, key = ""): JsonValue {
  if (isSecretName.test(key)) return json === "" || json === null ? json : redacted;
  if (secretMaps.has(key.toLowerCase())) return withoutValues(json);
  if (secretValues.has(key.toLowerCase())) return emptied(json);
  if (typeof json === "string") return redactText(json);
  if (Array.isArray(json)) return json.map((each) => redactJson(each));
  if (typeof json !== "object" || json === null) return json;
  return Object.fromEntries(
    Object.entries(json).map(([name, value]) => [redactText(name), redactJson(value, name)]),
  );
}

/** An environment: its names stay, also those of `KEY=VALUE`. */
function withoutValues(json: JsonValue): JsonValue {
  if (Array.isArray(json))
    return json.map((each) =>
      typeof each === "string" ? `${each.split("=", 1)[0]}=${redacted}` : redacted,
    );
  if (typeof json !== "object" || json === null) return json === null ? json : redacted;
  return Object.fromEntries(Object.keys(json).map((name) => [name, redacted]));
}

/** How much there is stays. */
function emptied(json: JsonValue): JsonValue {
  if (Array.isArray(json)) return json.map(() => redacted);
  return json === "" || json === null ? json : redacted;
}
