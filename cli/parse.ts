import { printable } from "../core/names.ts";
import { usage } from "./report.ts";

/** Adds one more value of a flag that may be repeated. */
export const collect = (value: string, before: readonly string[] | undefined): string[] => [
  ...(before ?? []),
  value,
];

/** Largest a field of the API takes. */
const most = 0xffff_ffff;

/** A whole number, for a flag. */
export function parseCount(flag: string, text: string): number {
  if (!/^[0-9]+$/.test(text)) {
    throw usage(`${flag} "${printable(text)}" is not a whole number`, "Write digits alone");
  }
  const value = Number(text);
  if (value > most)
    throw usage(`${flag} "${printable(text)}" is too large`, `It is ${most} at most`);
  return value;
}

const mebibytes: Readonly<Record<string, number>> = { "": 1, m: 1, mi: 1, g: 1024, gi: 1024 };

/** Memory in MiB: `256`, `256M`, `1G` (binary, also written Mi, MiB). */
export function parseMemory(text: string): number {
  const match = /^([0-9]{1,7})\s*(m|mi|g|gi)?b?$/i.exec(text);
  const unit = mebibytes[(match?.[2] ?? "").toLowerCase()];
  if (match === null || unit === undefined) {
    throw usage(
      `--memory "${printable(text)}" is not an amount of memory`,
      "Write MiB such as 256, or with a unit: 256M, 1G",
    );
  }
  return Number(match[1]) * unit;
}

const milliseconds: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, min: 60_000 };

/** A duration in milliseconds: `30s`, `500ms`, `2m`; a bare number is seconds. */
export function parseDuration(flag: string, text: string): number {
  const match = /^([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(ms|s|m|min)?$/.exec(text);
  const unit = milliseconds[match?.[2] ?? "s"];
  if (match === null || unit === undefined) {
    throw usage(
      `${flag} "${printable(text)}" is not a duration`,
      "Write seconds such as 30, or with a unit: 500ms, 30s, 2m",
    );
  }
  return Math.round(Number(match[1]) * unit);
}

/** `KEY=VALUE` pairs. */
export function parsePairs(flag: string, texts: readonly string[]): Record<string, string> {
  // (An assignment to an object's "__proto__" would be lost.)
  return Object.fromEntries(
    texts.map((text) => {
      const equals = text.indexOf("=");
      if (equals < 1) throw usage(`${flag} "${printable(text)}" has no value`, "Write KEY=VALUE");
      return [text.slice(0, equals), text.slice(equals + 1)];
    }),
  );
}

/**
 * What may be written `FIRST,key=value,word`, or with blanks as ip(8) does: `10.0.0.0/8 via 10.0.0.1`.
 * Only the keys named are taken; a key without a value must be among `words`.
 */
export function parseParts(
  flag: string,
  text: string,
  keys: readonly string[],
  words: readonly string[] = [],
): { readonly first: string; readonly rest: Readonly<Record<string, string>> } {
  const parts = text.split(/[\s,]+/).filter((part) => part !== "");
  const first = keys.some((key) => parts[0]?.startsWith(`${key}=`)) ? "" : (parts.shift() ?? "");
  const rest: Record<string, string> = {};
  for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
    const [key, ...values] = part.split("=") as [string, ...string[]];
    if (words.includes(part)) rest[part] = "true";
    else if (!keys.includes(key)) {
      throw usage(
        `${flag} "${printable(text)}" has a part "${printable(part)}" that means nothing here`,
        `Parts are ${[...keys.map((k) => `${k}=…`), ...words].join(", ")}`,
      );
    } else rest[key] = values.length > 0 ? values.join("=") : (parts.shift() ?? "");
  }
  return { first, rest };
}
