import { PodnetError } from "./errors.ts";
import { printable } from "./names.ts";

/** The most that passes an interface, as the pod sees it; absent: as its network says. */
export interface RateLimits {
  /** Towards the pod. */
  readonly in?: RateLimit;
  /** From the pod. */
  readonly out?: RateLimit;
}

export interface RateLimit {
  /** Bits a second; 0 is unlimited. */
  readonly bandwidth?: number;
  /** Bytes. */
  readonly burst?: number;
  /** Packets a second; 0 is unlimited. */
  readonly packets?: number;
}

type Fields = { readonly [Key in keyof RateLimit]?: number | null };

/** What is to become of limits: what is absent stays, null is as the network says. */
export interface LimitsChange {
  readonly in?: Fields;
  readonly out?: Fields;
}

const directions = ["in", "out"] as const;
const fields = ["bandwidth", "burst", "packets"] as const;

/** In decimal steps, as tc writes rates; `10M` is how Kubernetes does. */
const bits = {
  "": 1,
  bit: 1,
  ...steps(["k", "m", "g", "t"], 1000, ["", "bit"]),
  ...steps(["ki", "mi", "gi", "ti"], 1024, ["", "bit"]),
};
/** In binary steps, as tc writes sizes. */
const bytes = { "": 1, b: 1, ...steps(["k", "m", "g"], 1024, ["", "b", "ib"]) };
const counts = { "": 1, ...steps(["k", "m"], 1000, [""]) };

const kinds = {
  bandwidth: {
    units: bits,
    least: 8000,
    most: 1e12,
    range: "8kbit to 1tbit",
    hint: "Write 100mbit, 1gbit or 250kbit",
  },
  burst: {
    units: bytes,
    least: 1,
    most: 2 ** 30,
    range: "1 to 1gb",
    hint: "Write 256kb, 1mb or bytes alone",
  },
  packets: {
    units: counts,
    least: 1,
    most: 1e8,
    range: "1 to 100m",
    hint: "Write 10k or digits alone",
  },
} as const;

/** Checks a change of limits. Throws `INVALID_ARGUMENT`. */
export function validateLimits(
  limits: { readonly in?: LimitView | undefined; readonly out?: LimitView | undefined } | undefined,
  field: string,
): LimitsChange {
  const change: { -readonly [Key in keyof LimitsChange]: LimitsChange[Key] } = {};
  for (const direction of directions) {
    const asked = limits?.[direction];
    if (asked === undefined) continue;
    const given = fields
      .filter((name) => asked[name] !== "")
      .map((name) => [name, parseLimit(name, asked[name], `${field}.${direction}.${name}`)]);
    if (given.length > 0) change[direction] = Object.fromEntries(given) as Fields;
  }
  return change;
}

function parseLimit(name: keyof typeof kinds, text: string, field: string): number | null {
  const { units, least, most, range, hint } = kinds[name];
  if (text === "default") return null;
  if (text === "none" && name !== "burst") return 0;
  const match = /^([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([a-z]*)$/.exec(text.toLowerCase());
  const unit = (units as Readonly<Record<string, number>>)[match?.[2] ?? ""];
  if (match === null || unit === undefined)
    throw new PodnetError("INVALID_ARGUMENT", `"${printable(text)}" is no ${name}`, {
      field,
      hint: match?.[2]?.endsWith("bps") === true ? `In tc bps is bytes a second. ${hint}` : hint,
    });
  const value = Math.round(Number(match[1]) * unit);
  if (value >= least && value <= most) return value;
  const isBare = match[2] === "" && name === "bandwidth" && value < least;
  throw new PodnetError("INVALID_ARGUMENT", `${text}${isBare ? " bit/s" : ""} is out of range`, {
    field,
    hint: `Use ${range}${name === "burst" ? "" : ", or none"}`,
  });
}

/** Limits after a change; undefined: everything is as the network says. Pure. */
export function changedLimits(
  before: RateLimits | undefined,
  change: LimitsChange,
): RateLimits | undefined {
  const merged = directions.flatMap((direction) => {
    const values = { ...before?.[direction], ...change[direction] };
    const said = Object.entries(values).filter(([, value]) => value !== null);
    return said.length === 0 ? [] : [[direction, Object.fromEntries(said)] as const];
  });
  return merged.length === 0 ? undefined : Object.fromEntries(merged);
}

/** Limits as a request writes them. Pure. */
export const limitsView = (limits: RateLimits): { in?: LimitView; out?: LimitView } =>
  Object.fromEntries(
    directions.flatMap((direction) => {
      const limit = limits[direction];
      return limit === undefined ? [] : [[direction, limitView(limit)] as const];
    }),
  );

/** A limit as a request writes it; an empty field says nothing. */
interface LimitView {
  readonly bandwidth: string;
  readonly burst: string;
  readonly packets: string;
}

const limitView = ({ bandwidth, burst, packets }: RateLimit): LimitView => ({
  bandwidth: bandwidth === undefined ? "" : bandwidth === 0 ? "none" : bitsText(bandwidth),
  burst: burst === undefined ? "" : `${burst}`,
  packets: packets === undefined ? "" : packets === 0 ? "none" : `${packets}`,
});

/** In the largest unit that leaves a whole number. */
function bitsText(value: number): string {
  const unit = (["tbit", "gbit", "mbit", "kbit"] as const).find(
    (each) => value % bits[each] === 0 && value >= bits[each],
  );
  return unit === undefined ? `${value}bit` : `${value / bits[unit]}${unit}`;
}

function steps<const Prefix extends string, const Suffix extends string>(
  prefixes: readonly Prefix[],
  base: number,
  suffixes: readonly Suffix[],
): Readonly<Record<`${Prefix}${Suffix}`, number>> {
  const entries = prefixes.flatMap((prefix, i) =>
    suffixes.map((suffix) => [`${prefix}${suffix}`, base ** (i + 1)]),
  );
  return Object.fromEntries(entries) as Readonly<Record<`${Prefix}${Suffix}`, number>>;
}
