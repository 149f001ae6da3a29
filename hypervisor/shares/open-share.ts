import { closeSync, constants, fstatSync, openSync, readlinkSync, type Stats } from "node:fs";
import { perform } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { fileError } from "../../linux/syscall-error.ts";
import { isAllowed, type NamedFile } from "../disks/allowed-files.ts";
import type { SharePlan, VmPlan } from "../driver.ts";

/** open(2): names a directory without a right to read it. */
const O_PATH = 0o10_000_000;

/** A directory that is open, and of one that is written to whose it is. */
interface OpenShare {
  readonly fd: number;
  readonly owner?: { readonly uid: number; readonly gid: number };
}

/**
 * Opens a share's directory by its real path. What is checked is what is served: the kernel says
 * where the open directory lies, whatever links the path has got meanwhile. Throws
 * `SHARE_UNUSABLE`, `PERMISSION_DENIED`, `SYSCALL_FAILED`.
 */
export function openShare(
  { path, ...share }: Pick<SharePlan, "path" | "writable">,
  field: string,
  { sharesWithin, writableWithin = [] }: Pick<VmPlan, "sharesWithin" | "writableWithin">,
): Disposable & OpenShare {
  const writable = share.writable === true;
  const within = writable ? writableWithin : sharesWithin;
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
    if (within !== undefined && !isAllowed(real, within))
      throw writable ? notWritable(file) : notShared(file, within);
    if (real !== path) throw unusable(file, `has become a link to "${printable(real)}"`);
    const stat = fstatSync(fd);
    const fault = shareFault(stat, writable);
    if (fault !== undefined) throw unusable(file, fault);
    const owner = { uid: stat.uid, gid: stat.gid };
    return { fd, ...(writable ? { owner } : {}), [Symbol.dispose]: () => closeSync(fd) };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/**
 * Why nothing can be served of what was found at a path; undefined when it can be. What a guest
 * writes to belongs to a user with no other rights: what serves it is that user.
 */
export function shareFault(
  stat: Pick<Stats, "isDirectory" | "mode" | "uid" | "gid">,
  writable = false,
): string | undefined {
  if (!stat.isDirectory()) return "is no directory";
  if (writable) {
    if (stat.uid === 0 || stat.gid === 0) return "belongs to root, as user or group";
    if (stat.uid === process.geteuid?.()) return "belongs to podnetd's user";
    const all = constants.S_IRWXU;
    return (stat.mode & all) === all ? undefined : "may not be written to by its owner";
  }
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

const hints = [
  ["others", "Each machine is a user of its own: make the directory readable (chmod o+rx)"],
  [
    "belongs to",
    "What the guest writes is its owner's: give it a user of its own (chown USER:GROUP)",
  ],
  ["its owner", "The guest writes as the directory's owner: chmod u+rwx"],
] as const;
const otherHint =
  "Give the path of a directory on podnetd's host, without symbolic links below an allowed one";

/** The refusal of a directory that nothing can be served of. */
export const unusable = ({ path, field }: NamedFile, why: string, cause?: unknown): PodnetError =>
  new PodnetError("SHARE_UNUSABLE", `"${printable(path)}" cannot be shared: it ${why}`, {
    field,
    hint: hints.find(([part]) => why.includes(part))?.[1] ?? otherHint,
    details: { path },
    cause,
  });

/** The refusal of a directory that no pod may write to. */
export const notWritable = ({ path, field }: NamedFile): PodnetError =>
  new PodnetError("PERMISSION_DENIED", `No pod may write to "${printable(path)}"`, {
    field,
    hint: "Share it without writable, or have an administrator extend access.writable_share_paths",
    details: { path },
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
