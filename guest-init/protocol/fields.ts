import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { decodeUtf8, encodeUtf8 } from "../../core/utf8.ts";
import { countOpeners, isDeeperThan, jsonDepthLimit } from "./json-depth.ts";

/** A message that is not as the protocol has it: `AGENT_PROTOCOL`, with the key at fault. */
export const malformed = (message: string, field?: string, cause?: unknown): PodnetError =>
  new PodnetError("AGENT_PROTOCOL", message, {
    ...(field === undefined || field === "" ? {} : { field }),
    ...(cause === undefined ? {} : { cause }),
  });

/**
 * JSON out of a payload. Throws `AGENT_PROTOCOL`, also when it is nested too deeply to be parsed
 * safely.
 */
export function decodeJson(payload: Uint8Array): unknown {
  const text = decodeUtf8(payload);
  if (countOpeners(payload) > jsonDepthLimit && isDeeperThan(text))
    throw malformed(`The message is nested deeper than ${jsonDepthLimit} levels`);
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    throw malformed("The message is not JSON", undefined, cause);
  }
}

export const encodeJson = (value: unknown): Uint8Array => encodeUtf8(JSON.stringify(value));

/** The agent's own (guest-init/agent/native/engine.c), for most text; its engine is slow at it. */
const { quoted } = globalThis as { quoted?: (text: string) => string | undefined };

/** A text as JSON has it. */
export const quote = (text: string): string => quoted?.(text) ?? JSON.stringify(text);

export interface IntegerRange {
  readonly min?: number;
  readonly max?: number;
}

/** Turns one value into a typed one, or throws; `path` names it in messages. */
export type ParseValue<T> = (value: unknown, path: string) => T;

function refuseNonObject(
  value: unknown,
  path: string,
): asserts value is Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw malformed(`${path === "" ? "The message" : `"${path}"`} is not an object`, path);
}

const missingKey = (path: string): PodnetError => malformed(`"${path}" is missing`, path);
const unknownKey = (path: string): PodnetError =>
  malformed(`Key "${printable(path)}" is unknown`, printable(path));

/**
 * The keys of one JSON object, taken one by one; `done` refuses whatever was not asked for, as
 * hyperstart does. `null` counts as absent: Go's encoder writes it for empty slices and pointers.
 */
export class Fields {
  readonly #values: Map<string, unknown>;
  readonly #path: string;

  constructor(value: unknown, path = "") {
    refuseNonObject(value, path);
    this.#path = path;
    this.#values = new Map(Object.entries(value));
  }

  /** Path of a key, for messages. */
  at(key: string): string {
    return this.#path === "" ? key : `${this.#path}.${key}`;
  }

  /** The raw value; undefined when absent or null. */
  take(key: string): unknown {
    const value = this.#values.get(key);
    this.#values.delete(key);
    return value === null ? undefined : value;
  }

  optional<T>(key: string, parse: ParseValue<T>): T | undefined {
    const value = this.take(key);
    return value === undefined ? undefined : parse(value, this.at(key));
  }

  required<T>(key: string, parse: ParseValue<T>): T {
    const value = this.take(key);
    if (value === undefined) throw missingKey(this.at(key));
    return parse(value, this.at(key));
  }

  /** A list; absent is empty. */
  list<T>(key: string, parse: ParseValue<T>): T[] {
    return this.optional(key, listOf(parse)) ?? [];
  }

  /** Refuses keys that were not taken. */
  done(): void {
    for (const key of this.#values.keys()) throw unknownKey(this.at(key));
  }
}

export const asString: ParseValue<string> = (value, path) => {
  if (typeof value !== "string") throw malformed(`"${path}" is not a string`, path);
  // The kernel and C end a text at its first NUL: it would name something else than what was
  // checked.
  if (value.includes("\0")) throw malformed(`"${path}" has a NUL character in it`, path);
  return value;
};

export const asBoolean: ParseValue<boolean> = (value, path) => {
  if (typeof value !== "boolean") throw malformed(`"${path}" is not true or false`, path);
  return value;
};

export const asInteger =
  ({ min = 0, max = Number.MAX_SAFE_INTEGER }: IntegerRange = {}): ParseValue<number> =>
  (value, path) => {
    if (typeof value !== "number" || !Number.isSafeInteger(value) || value < min || value > max)
      throw malformed(`"${path}" is not an integer from ${min} to ${max}`, path);
    // JSON can write -0, which no encoder gives back.
    return value === 0 ? 0 : value;
  };

export const listOf =
  <T>(parse: ParseValue<T>): ParseValue<T[]> =>
  (value, path) => {
    if (!Array.isArray(value)) throw malformed(`"${path}" is not a list`, path);
    return value.map((item: unknown, i) => parse(item, `${path}[${i}]`));
  };

/** A list of texts, absent is empty. The place of each is put together only for what is refused. */
export function texts(): Needed<string[]> {
  const isPlain = (value: unknown): value is string =>
    typeof value === "string" && !value.includes("\0");
  const parse: ParseValue<string[]> = (value, path) =>
    Array.isArray(value) && value.every(isPlain) ? value : listOf(asString)(value, path);
  return { parse, absent: "empty" };
}

/**
 * A string read by one of `core`'s parsers, whose refusal becomes `AGENT_PROTOCOL` with this key.
 */
export const asText =
  <T>(parse: (text: string, field: string) => T): ParseValue<T> =>
  (value, path) => {
    const text = asString(value, path);
    try {
      return parse(text, path);
    } catch (cause) {
      throw malformed(cause instanceof Error ? cause.message : String(cause), path, cause);
    }
  };

/** An object read key by key, unknown keys refused. */
export const asObject =
  <T>(read: (fields: Fields) => T): ParseValue<T> =>
  (value, path) => {
    const fields = new Fields(value, path);
    const result = read(fields);
    fields.done();
    return result;
  };

/** How the value of one key is read, and what becomes of the key where it is absent. */
interface Key<T> {
  readonly parse: ParseValue<T>;
  readonly absent: "refused" | "left out" | "empty" | "otherwise";
  readonly otherwise?: T;
}
interface Needed<T> extends Key<T> {
  readonly absent: "refused" | "empty" | "otherwise";
}

/** The keys of an object: those that it may lack may be left out. */
export type Keys<T> = {
  readonly [K in keyof T]-?: Partial<Pick<T, K>> extends Pick<T, K>
    ? Key<Exclude<T[K], undefined>>
    : Needed<T[K]>;
};

export const needed = <T>(parse: ParseValue<T>): Needed<T> => ({ parse, absent: "refused" });
export const maybe = <T>(parse: ParseValue<T>): Key<T> => ({ parse, absent: "left out" });
export const withDefault = <T>(parse: ParseValue<T>, otherwise: T): Needed<T> => ({
  parse,
  absent: "otherwise",
  otherwise,
});
/** A list; absent is empty. */
export const list = <T>(parse: ParseValue<T>): Needed<T[]> => ({
  parse: listOf(parse),
  absent: "empty",
});

/**
 * An object of these keys, others refused: as `asObject`, for what a guest reads while a create
 * waits. The work depends on the keys that are there. `check` sees the whole.
 */
export function asKeys<T extends object>(
  keys: Keys<T>,
  check: (value: T, path: string) => void = () => {},
): ParseValue<T> {
  /** With the path that a key had last: most objects are at the same place each time. */
  const known = new Map(
    Object.entries<Key<unknown>>(keys).map(([name, key]) => [
      name,
      { ...key, name, under: "", path: name },
    ]),
  );
  const always = [...known.values()].filter(({ absent }) => absent !== "left out");
  return (value, path) => {
    refuseNonObject(value, path);
    const under = path === "" ? "" : `${path}.`;
    const result: Record<string, unknown> = {};
    for (const name of Object.keys(value)) {
      const key = known.get(name);
      if (key === undefined) throw unknownKey(under + name);
      const given = value[name];
      if (given === null) continue;
      if (key.under !== under) {
        key.under = under;
        key.path = under + name;
      }
      const read = key.parse(given, key.path);
      if (read !== undefined) result[name] = read;
    }
    for (const key of always) {
      const { name } = key;
      if (result[name] !== undefined) continue;
      if (key.absent === "refused") throw missingKey(under + name);
      result[name] = key.absent === "empty" ? [] : key.otherwise;
    }
    check(result as T, path);
    return result as T;
  };
}

/** A whole payload as an object, unknown keys refused. */
export const parseObject = <T>(payload: Uint8Array, read: (fields: Fields) => T): T =>
  asObject(read)(decodeJson(payload), "");

/** `{ [key]: value }`, or nothing when the value is undefined: for optional properties. */
export const given = <K extends string, T>(key: K, value: T | undefined): { [P in K]?: T } =>
  (value === undefined ? {} : { [key]: value }) as { [P in K]?: T };
