/** The parsed JSON; undefined if the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** A field of a JSON object; undefined if the value is no object, or has no such field. */
export const fieldOf = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null && !Array.isArray(value) && Object.hasOwn(value, name)
    ? (value as Readonly<Record<string, unknown>>)[name]
    : undefined;

/** A text in an object, by the names of the fields that lead to it. */
export function textOf(value: unknown, ...path: readonly string[]): string | undefined {
  const found = path.reduce(fieldOf, value);
  return typeof found === "string" ? found : undefined;
}
