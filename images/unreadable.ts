import { PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";

/** The error for an image that cannot be read as one. The message says what is wrong with it. */
export const unreadable = (
  what: string,
  hint = "Make the archive again, and check that it was copied whole",
): PodnetError => new PodnetError("IMAGE_UNREADABLE", what, { hint });

/** A path or name of an image, quoted for people. */
export const quoted = (name: string): string =>
  `"${printable(Buffer.from(name, "latin1").toString("utf8"))}"`;
