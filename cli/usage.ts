import { PodnetError } from "../core/errors.ts";

/** An error in how the command was called. */
export const usage = (message: string, hint: string, field?: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", message, {
    hint,
    ...(field === undefined ? {} : { field }),
  });
