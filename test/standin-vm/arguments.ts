import { QmpError } from "./qmp-error.ts";

export type Json = Readonly<Record<string, unknown>>;
export const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);

type Kind = "string" | "string?" | "array?" | "any";

/** What a command takes. Names in the order in which QEMU looks at them. */
export type Shape = Readonly<Record<string, Kind>>;

/** Checks a command's arguments as QAPI's input visitor does; `any` is left to the command. */
export function checkArguments(shape: Shape, given: Json): void {
  for (const [name, kind] of Object.entries(shape)) {
    const value = given[name];
    if (value === undefined) {
      if (!kind.endsWith("?") && kind !== "any")
        throw new QmpError(`Parameter '${name}' is missing`);
    } else if (kind.startsWith("array") && !Array.isArray(value)) {
      throw new QmpError(`Invalid parameter type for '${name}', expected: array`);
    } else if (kind.startsWith("string") && typeof value !== "string") {
      throw new QmpError(`Invalid parameter type for '${name}', expected: string`);
    }
  }
  const surplus = Object.keys(given).find((name) => !(name in shape));
  if (surplus !== undefined) throw new QmpError(`Parameter '${surplus}' is unexpected`);
}

/** Ids QEMU takes: a letter, then letters, digits, `-`, `.`, `_`. */
export function checkId(id: string): void {
  if (!/^[A-Za-z][-A-Za-z0-9._]*$/.test(id))
    throw new QmpError("Parameter 'id' expects an identifier");
}
