import { closeSync, constants, fstatSync, openSync, readlinkSync, type Stats } from "node:fs";
import { perform } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { fileError } from "../../linux/syscall-error.ts";
import { isAllowed, type NamedFile } from "../disks/allowed-files.ts";
import type { SharePlan } from "../driver.ts";

/** open(2): names a directory without a right to read it. */
const O_PATH = 0o10_000_000;

/**
 * Opens a share's directory by its real path. What is checked is what is served: the kernel says
 * where the open directory lies, whatever links the path has got meanwhile. Throws
 * `SHARE_UNUSABLE`, `PERMISSION_DENIED`, `SYSCALL_FAILED`.
 */
export function openShare(
  { path }: Pick<SharePlan, "path">,
  field: string,
  within: readonly string[] | undefined,
): Disposable & { readonly fd: number } {
  const file = { path, field };
  const flags = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
  let fd: number;
  try {
    fd = perform("file", "open share", () => openSync(path, flags));
  } catch (error) {
    throw notOpened(file, error);
  }
  try {
    const real = readlinkSync(`/proc/self/fd/${fd}`);
    if (within !== undefined && !isAllowed(real, within)) throw notShared(file, within);
    if (real !== path) throw unusable(file, `has become a link to "${printable(real)}"`);
    const fault = shareFault(fstatSync(fd));
    if (fault !== undefined) throw unusable(file, fault);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  return { fd, [Symbol.dispose]: () => closeSync(fd) };
}

/** Why nothing can be served of what was found at a path; undefined when it can be. Pure. */
export function shareFault(stat: Pick<Stats, "isDirectory" | "mode">): string | undefined {
  if (!stat.isDirectory()) return "is no directory";
  const reading = constants.S_IROTH | constants.S_IXOTH;
  return (stat.mode & reading) === reading ? undefined : "may not be read by others";
}

function notOpened(file: NamedFile, error: unknown): PodnetError {
  const { code } = error as NodeJS.ErrnoException;
  if (code === "ENOENT") return unusable(file, "does not exist", error);
  if (code === "ENOTDIR" || code === "ELOOP") return unusable(file, "is no directory", error);
  return fileError(error, `Cannot open the directory "${printable(file.path)}"`, {
    field: file.field,
  });
}

/** The refusal of a directory that nothing can be served of. */
export const unusable = ({ path, field }: NamedFile, why: string, cause?: unknown): PodnetError =>
  new PodnetError("SHARE_UNUSABLE", `"${printable(path)}" cannot be shared: it ${why}`, {
    field,
    hint: why.includes("others")
      ? "Each machine is a user of its own: make the directory readable (chmod o+rx)"
      : "Give the path of a directory on podnetd's host, without symbolic links below an allowed one",
    details: { path },
    cause,
  });

/** The refusal of a directory that its pod's creator may not share. */
export function notShared({ path, field }: NamedFile, allowed: readonly string[]): PodnetError {
  const where = allowed.map((each) => printable(each)).join(", ");
  return new PodnetError(
    "PERMISSION_DENIED",
    `Only administrators' pods may share "${printable(path)}"; yours may share what is in ${where || "no place"}`,
    {
      field,
      hint: "Ask an administrator to create the pod, or to extend access.share_paths",
      details: { path, allowed: where },
    },
  );
}
