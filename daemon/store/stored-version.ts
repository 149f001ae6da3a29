import { PodnetError } from "../../core/errors.ts";
import { damaged } from "./rows.ts";

/**
 * Versions of a stored form that a newer podnetd may have written: each release adds one at most.
 */
const newestAhead = 100;

/**
 * Checks the version of a stored form. Throws `STATE_NEWER` for a version that a newer podnetd may
 * have written. Throws `STATE_CORRUPT` for a value that no podnetd writes (not a positive integer,
 * or far above the known version), and for an older version, which a step of the schema could not
 * read.
 */
export function checkVersion(version: unknown, known: number, what: string): void {
  if (version === known) return;
  if (version === undefined) throw damaged(`${what} has no version`);
  if (!Number.isSafeInteger(version)) throw damaged(`${what}'s version is no number`);
  const found = version as number;
  if (found < 1 || found > known + newestAhead)
    throw damaged(`${what}'s version is ${found}, which no podnetd writes`);
  // The schema's steps bring older ones up to date, but for what makes no sense.
  if (found < known) throw damaged(`${what} is of version ${found} and makes no sense`);
  throw new PodnetError(
    "STATE_NEWER",
    `A stored ${what} has version ${found}, this podnetd knows ${known}`,
    { hint: "Run the podnetd that wrote it, or a newer one" },
  );
}
