import { isPodnetError } from "../core/errors.ts";
import { spaceError } from "../guest-init/image/build-image.ts";

/**
 * Ends a build script on a failure: what went wrong, what to do, and what the failed command said.
 */
export function complainAndFail(program: string, thrown: unknown): void {
  const error = spaceError(thrown);
  if (!isPodnetError(error)) throw error;
  console.error(`${program}: ${error.message}`);
  if (error.hint !== undefined) console.error(`  ${error.hint}`);
  const { stderr } = error.details;
  if (stderr !== undefined && stderr !== "") console.error(stderr);
  process.exitCode = 1;
}
