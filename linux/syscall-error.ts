import { type ErrorContext, PodnetError } from "../core/errors.ts";
import { lastErrno } from "./ffi/libc.ts";
import { errnoName } from "./rtnetlink/errno.ts";

/** Hint for an error of the host. */
export const errnoHint = (name: string): string | undefined => descriptorHints[name] ?? hints[name];

const hints: Readonly<Record<string, string>> = {
  EPERM: "Run podnetd as root, or give it CAP_NET_ADMIN",
  EACCES: "Run podnetd as root, or give it access to the path named",
  ENOSPC: "Make room on the filesystem of the path named, or free inodes there (df -i)",
};

/**
 * Hints for missing descriptors, which any call can meet: they come before the caller's own hint.
 */
const descriptorHints: Readonly<Record<string, string>> = {
  EMFILE: "Raise the limit of open files (LimitNOFILE= in the unit, ulimit -n)",
  ENFILE: "Raise the limit of open files of the system (fs.file-max)",
};

/**
 * A `SYSCALL_FAILED` error; `details.errno` holds the error's name, `details.syscall` the call's.
 * `what` says in the caller's words what could not be done, e.g. `Cannot open tap "tap0"`.
 */
export function syscallError(
  syscall: string,
  errno: number,
  what: string,
  context: ErrorContext = {},
): PodnetError {
  const name = errnoName(errno);
  const hint = descriptorHints[name] ?? context.hint ?? hints[name];
  return new PodnetError("SYSCALL_FAILED", `${what}: ${syscall} failed with ${name}`, {
    ...context,
    ...(hint === undefined ? {} : { hint }),
    details: { ...context.details, syscall, errno: name },
  });
}

/**
 * Hands a call's result on, or throws `SYSCALL_FAILED` when it is negative. To be called at once
 * after the call.
 */
export function checked(result: number, syscall: string, what: string): number {
  if (result < 0) throw syscallError(syscall, lastErrno(), what);
  return result;
}

/** An error for what `node:fs` throws. */
export function fileError(thrown: unknown, what: string, context: ErrorContext = {}): PodnetError {
  const { errno, syscall } = thrown as NodeJS.ErrnoException;
  if (errno === undefined) throw thrown;
  // (Node's own functions have the number negative, its removal of directories does not.)
  // A program that cannot be started is named after the call.
  return syscallError(syscall?.split(" ", 1)[0] ?? "open", Math.abs(errno), what, {
    ...context,
    cause: thrown,
  });
}
