/** The agent answers ERROR, with this text if any. */
export class Refused extends Error {
  readonly reply: Buffer;

  constructor(message: string, reply = "") {
    super(message);
    this.reply = Buffer.from(reply, "latin1");
  }
}

/** An object whose keys are all known. The agent's parsers know no others. */
export type Fields = ReadonlyMap<string, unknown>;

/** Parses a payload; stream numbers are u64 and come as bigint. */
export function parsePayload(payload: Buffer): unknown {
  try {
    return JSON.parse(payload.toString(), (key, value: unknown, context?: { source?: string }) =>
      (key === "stdio" || key === "stderr") && typeof value === "number"
        ? BigInt(context?.source ?? value)
        : value,
    );
  } catch (error) {
    throw new Refused(`bad JSON: ${String(error)}`);
  }
}

export function object(value: unknown, known: readonly string[]): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new Refused("not an object");
  const fields = new Map(Object.entries(value));
  for (const key of fields.keys())
    if (!known.includes(key)) throw new Refused(`unknown key ${key}`);
  return fields;
}

export function text(fields: Fields, key: string): string | undefined {
  const value = fields.get(key);
  if (value === undefined || typeof value === "string") return value;
  throw new Refused(`${key} is no string`);
}

export function required(fields: Fields, key: string): string {
  const value = text(fields, key);
  if (value === undefined) throw new Refused(`no ${key}`);
  return value;
}

export function number(fields: Fields, key: string): number | undefined {
  const value = fields.get(key);
  if (value === undefined || typeof value === "number") return value;
  throw new Refused(`${key} is no number`);
}

export function list(fields: Fields, key: string): readonly unknown[] {
  const value = fields.get(key) ?? [];
  if (Array.isArray(value)) return value as unknown[];
  throw new Refused(`${key} is no array`);
}

export function texts(fields: Fields, key: string): readonly string[] {
  return list(fields, key).map((value) => {
    if (typeof value === "string") return value;
    throw new Refused(`${key} holds what is no string`);
  });
}
