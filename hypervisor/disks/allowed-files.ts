import { readlinkSync } from "node:fs";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { VmPlan } from "../driver.ts";

/**
 * Whether a file's real path is one of those allowed, or below one: real paths of files and
 * directories too.
 */
export const isAllowed = (real: string, allowed: readonly string[]): boolean =>
  allowed.some((each) => real === each || real.startsWith(each.endsWith("/") ? each : `${each}/`));

/**
 * Refuses an open file that is not allowed, by whatever path it was opened: the kernel knows where
 * it lies (proc(5), /proc/pid/fd), and an open file can no longer be replaced. Throws
 * `PERMISSION_DENIED`.
 */
export function checkOpened(
  fd: number,
  file: NamedFile,
  allowed: readonly string[] | undefined,
  refusal: (file: NamedFile, allowed: readonly string[]) => PodnetError = notAllowed,
): void {
  if (allowed === undefined || isAllowed(readlinkSync(`/proc/self/fd/${fd}`), allowed)) return;
  throw refusal(file, allowed);
}

/** `checkOpened` for a disk: one that is written through lies where its pod's creator may write. */
export function checkDiskOpened(
  fd: number,
  file: NamedFile,
  writesThrough: boolean,
  { imagesWithin, writeWithin }: Pick<VmPlan, "imagesWithin" | "writeWithin">,
): void {
  if (writesThrough && writeWithin !== undefined) checkOpened(fd, file, writeWithin, notWritable);
  else checkOpened(fd, file, imagesWithin);
}

/** A file that a pod's creator named, and where it was named. */
export interface NamedFile {
  readonly path: string;
  readonly field: string;
}

/** The refusal of a disk that its pod's creator may not write through to. */
export function notWritable({ path, field }: NamedFile, allowed: readonly string[]): PodnetError {
  const where = allowed.map((each) => printable(each)).join(", ");
  return new PodnetError(
    "PERMISSION_DENIED",
    `Only administrators' pods may write through to "${printable(path)}"; yours may to files in ${where || "no place"}`,
    {
      field,
      hint: "Leave write_through out: the pod then writes to a file of its own. Or ask an administrator to extend access.write_through_paths",
      details: { path, allowed: where },
    },
  );
}

/** The refusal of a file that its pod's creator may not name. */
export function notAllowed({ path, field }: NamedFile, allowed: readonly string[]): PodnetError {
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
