import { invalid } from "../../../api/fields.ts";
import { printable } from "../../../core/names.ts";

/** What ids of pods and names of containers may be. */
export const idPattern = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;

/** A container's name, which may be empty. Throws `INVALID_ARGUMENT`. Pure. */
export function containerName(name: string, field: string): string {
  if (name === "" || idPattern.test(name)) return name;
  throw invalid(
    field,
    `"${printable(name)}" is not usable as a container's name`,
    "Use at most 128 letters, digits, _, . and -, with a letter or a digit first",
  );
}
