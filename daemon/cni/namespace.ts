import { statfsSync } from "node:fs";

/** NSFS_MAGIC of linux/magic.h: what a namespace's path lies on, while it is bound there. */
const nsfs = 0x6e736673;

/**
 * Whether a path still leads to a namespace, as far as podnetd may see: its file stays, empty, when it was unmounted alone.
 * One that podnetd may not look at (`/proc/PID/ns/net` of a process that it may not trace) is not taken to be gone.
 */
export function isNamespace(path: string): boolean {
  try {
    return statfsSync(path).type === nsfs;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === "EACCES" || code === "EPERM";
  }
}
