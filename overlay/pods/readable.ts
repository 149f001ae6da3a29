import { isPodnetError, PodnetError } from "../../core/errors.ts";

/** What a reader of others' records gives; undefined when it refuses. */
export function readable<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (!isPodnetError(error, "INVALID_ARGUMENT", "ADDRESS_INVALID")) throw error;
    return undefined;
  }
}

/**
 * What a reader throws for `readable` to catch: nobody is told more than that a record was passed
 * over.
 */
export const unreadable = (): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", "A record of another host cannot be read");
