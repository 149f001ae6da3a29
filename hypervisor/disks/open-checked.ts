import { closeSync, constants, fstatSync, openSync } from "node:fs";

/** open(2): names a file without opening it, so that no device and no pipe notices. */
const O_PATH = 0o10_000_000;

/** Why a file that `openChecked` does not open is no disk. Follows the file's name. */
export const noDisk = "is no regular file and no block device";

/**
 * Opens a regular file or block device, which `check` has seen first and may refuse by throwing;
 * answers undefined for any other kind of file, which is never opened: a program at the other end
 * of a pipe would go on, and devices such as a watchdog act on an open alone. What is checked is
 * what is opened, however the path changes meanwhile. With O_NOFOLLOW a symbolic link is another
 * kind of file. Throws as `openSync`, and as `check`.
 */
export function openChecked(
  path: string,
  flags: number,
  check: (fd: number) => void = () => {},
): number | undefined {
  const named = openSync(path, O_PATH | (flags & constants.O_NOFOLLOW));
  try {
    check(named);
    const stat = fstatSync(named);
    if (!stat.isFile() && !stat.isBlockDevice()) return undefined;
    // (This path is a link itself.)
    return openSync(`/proc/self/fd/${named}`, flags & ~constants.O_NOFOLLOW);
  } finally {
    closeSync(named);
  }
}
