import { PodnetError } from "../core/errors.ts";

/** An `INVALID_ARGUMENT` about one field. */
export const invalid = (field: string, message: string, hint: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", message, { field, hint });

/** Refuses a list with more entries than podnet keeps. */
export function checkCount(list: readonly unknown[], most: number, field: string): void {
  if (list.length > most) {
    throw invalid(field, `${list.length} entries are too many`, `Give at most ${most}`);
  }
}
