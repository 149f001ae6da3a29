import { constants } from "node:os";
import type { PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";
import { nearest } from "../core/nearest.ts";
import { usage } from "./usage.ts";

/** Adds one more value of a flag that may be repeated. */
export const collect = (value: string, before: readonly string[] | undefined): string[] => [
  ...(before ?? []),
  value,
];

/** Largest a field of the API takes. */
const most = 0xffff_ffff;

/** A whole number of `least` or more, for a flag. */
export function parseCount(flag: string, text: string, least = 0): number {
  if (!/^[0-9]+$/.test(text)) {
    throw usage(`${flag} "${printable(text)}" is not a whole number`, "Write digits alone");
  }
  const value = Number(text);
  if (value > most)
    throw usage(`${flag} "${printable(text)}" is too large`, `It is ${most} at most`);
  if (value < least)
    throw usage(`${flag} "${printable(text)}" is too small`, `It is ${least} at least`);
  return value;
}

const mebibytes: Readonly<Record<string, number>> = { "": 1, m: 1, g: 1024, t: 1024 ** 2 };

/** Memory in MiB: `256`, `256M`, `1.5G` (binary, also written Mi, MiB). */
export function parseMemory(text: string, flag = "--memory"): number {
  const match = /^([0-9]{1,7}(?:\.[0-9]{1,4})?)\s*(?:([mgt])i?)?b?$/i.exec(text);
  const unit = mebibytes[(match?.[2] ?? "").toLowerCase()];
  const mib = Number(match?.[1]) * (unit ?? 0);
  if (match === null || !Number.isSafeInteger(mib) || mib > most) {
    throw usage(
      `${flag} "${printable(text)}" is not an amount of memory`,
      "Write MiB such as 256, or with a unit: 256M, 1.5G",
    );
  }
  return mib;
}

const byteUnits: Readonly<Record<string, number>> = {
  "": 1,
  k: 2 ** 10,
  m: 2 ** 20,
  g: 2 ** 30,
  t: 2 ** 40,
};

/** An amount in bytes: `4096`, `512M`, `64G` (binary, also written Mi, MiB). */
export function parseBytes(flag: string, text: string): number {
  const match = /^([0-9]{1,12})\s*([kmgt]?)i?b?$/i.exec(text);
  const value = Number(match?.[1]) * (byteUnits[(match?.[2] ?? "").toLowerCase()] ?? 1);
  if (match === null || !Number.isSafeInteger(value)) {
    throw usage(
      `${flag} "${printable(text)}" is not an amount of bytes`,
      "Write bytes, or with a unit: 512M, 64G",
    );
  }
  return value;
}

const milliseconds: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** A duration in milliseconds, one or more: `500ms`, `30s`, `12h`; a bare number is seconds. */
export function parseDuration(flag: string, text: string): number {
  const match = /^([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(ms|s|m|min|h|d)?$/.exec(text);
  const unit = milliseconds[match?.[2] ?? "s"];
  if (match === null || unit === undefined) {
    throw usage(
      `${flag} "${printable(text)}" is not a duration`,
      "Write seconds such as 30, or with a unit: 500ms, 30s, 2m",
    );
  }
  const ms = Math.round(Number(match[1]) * unit);
  if (ms === 0)
    throw usage(`${flag} "${printable(text)}" is no time`, "Write 1ms or more, or leave it out");
  return ms;
}

/** A signal's number: `TERM`, `SIGTERM` or `15`. */
export function parseSignal(text: string): number {
  const name = text.toUpperCase().replace(/^(?!SIG)/, "SIG");
  const number = /^[0-9]{1,2}$/.test(text)
    ? Number(text)
    : Object.entries(constants.signals).find(([each]) => each === name)?.[1];
  if (number !== undefined && number >= 1 && number <= 64) return number;
  throw usage(
    `--signal "${printable(text)}" is not a signal`,
    "Write a name such as TERM, or 1 to 64",
  );
}

/** `KEY=VALUE` pairs of a flag, or of what is called a field. */
export function parsePairs(field: string, texts: readonly string[]): Record<string, string> {
  // (An assignment to an object's "__proto__" would be lost.)
  return Object.fromEntries(
    texts.map((text) => {
      const equals = text.indexOf("=");
      if (equals < 1) {
        const what = equals === 0 ? "key" : "value";
        throw usage(`"${printable(text)}" has no ${what}`, "Write KEY=VALUE", field);
      }
      return [text.slice(0, equals), text.slice(equals + 1)];
    }),
  );
}

/**
 * Parses `FIRST,key=value,word`, also written with blanks as in ip(8): `10.0.0.0/8 via 10.0.0.1`.
 * Only the named keys are accepted; a key without a value must be among `words`.
 */
export function parseParts(
  flag: string,
  text: string,
  keys: readonly string[],
  words: readonly string[] = [],
): { readonly first: string; readonly rest: Readonly<Record<string, string>> } {
  const parts = text.split(/[\s,]+/).filter((part) => part !== "");
  const unknown = (part: string): PodnetError => {
    const meant = nearest(part.split("=", 1)[0] ?? "", [...keys, ...words]);
    return usage(
      `${flag} "${printable(text)}" has a part "${printable(part)}" that means nothing here`,
      `${meant === undefined ? "" : `Did you mean ${meant}? `}Parts are ${[...keys.map((k) => `${k}=…`), ...words].join(", ")}`,
    );
  };
  const first = keys.some((key) => parts[0]?.startsWith(`${key}=`)) ? "" : (parts.shift() ?? "");
  // (A path may hold "=", but behind its first slash.)
  if (/^[\w-]*=/.test(first)) throw unknown(first);
  const rest: Record<string, string> = {};
  for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
    const [key, ...values] = part.split("=") as [string, ...string[]];
    if (words.includes(part)) rest[part] = "true";
    else if (!keys.includes(key)) throw unknown(part);
    else rest[key] = values.length > 0 ? values.join("=") : (parts.shift() ?? "");
  }
  return { first, rest };
}
