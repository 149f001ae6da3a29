import { readlinkSync } from "node:fs";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";

/** Whether a file's real path is one of those allowed, or below one: real paths of files and directories too. */
export const isAllowed = (real: string, allowed: readonly string[]): boolean =>
  allowed.some((each) => real === each || real.startsWith(each.endsWith("/") ? each : `${each}/`));

/**
 * Refuses an open file that is not allowed, whatever path it was opened by: the kernel knows where it lies (proc(5),
 * /proc/pid/fd), and nobody can put another one in its place any more. Throws `PERMISSION_DENIED`.
 */
export function checkOpened(
  fd: number,
  file: { readonly path: string; readonly field: string },
  allowed: readonly string[] | undefined,
): void {
  if (allowed === undefined || isAllowed(readlinkSync(`/proc/self/fd/${fd}`), allowed)) return;
  throw notAllowed(file.path, file.field, allowed);
}

/** The refusal of a file that its pod's creator may not name. */
export function notAllowed(path: string, field: string, allowed: readonly string[]): PodnetError {
  const where = allowed.map((each) => printable(each)).join(", ");
  return new PodnetError(
    "PERMISSION_DENIED",
    `"${printable(path)}" lies where only administrators' pods may have files; yours may in ${where || "no place"}`,
    {
      field,
      hint: "Put the file there, or ask an administrator to create the pod or to extend access.image_paths",
      details: { path, allowed: where },
    },
  );
}
