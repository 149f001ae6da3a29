import { isPodnetError, PodnetError } from "../../core/errors.ts";

/** The result of parsing another host's record; undefined if the parser refuses it. */
export function readable<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (!isPodnetError(error, "INVALID_ARGUMENT", "ADDRESS_INVALID")) throw error;
    return undefined;
  }
}

/**
 * The error that a parser throws and `readable` catches: users only see that a record was skipped.
 */
export const unreadable = (): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", "A record of another host cannot be read");
