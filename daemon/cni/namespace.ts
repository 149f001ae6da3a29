import { statfsSync } from "node:fs";

/** NSFS_MAGIC of linux/magic.h: what a namespace's path lies on, while it is bound there. */
const nsfs = 0x6e736673;

/** Whether a path still leads to a namespace: its file stays, empty, when it was unmounted alone. */
export function isNamespace(path: string): boolean {
  try {
    return statfsSync(path).type === nsfs;
  } catch {
    return false;
  }
}
