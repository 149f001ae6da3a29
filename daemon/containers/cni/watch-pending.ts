import { type FSWatcher, mkdirSync, statSync, watch } from "node:fs";
import { perform } from "../../../core/effect.ts";
import { guarded } from "../../../core/guard.ts";
import type { Log } from "../../../linux/log.ts";

/** Between looks that nothing asked for, milliseconds: the kernel may have reported nothing. */
const everyMs = 2000;
/**
 * From a change to the look it asks for, milliseconds: plugins that are turned away are commonly
 * many.
 */
const gatherMs = 50;

interface Watched {
  readonly inode: number;
  readonly watcher: FSWatcher;
}

/**
 * Calls `look` for DELs that plugins wrote down: soon after the directory has changed, and every
 * few seconds in case the kernel reports nothing. Until disposed.
 */
export function watchPending(directory: string, look: () => void, log: Log): Disposable {
  try {
    // Plugins would make the directory as root, and podnetd need not be root.
    perform("file", "make directory of pending DELs", () =>
      mkdirSync(directory, { recursive: true, mode: 0o700 }),
    );
  } catch (err) {
    log.warn({ err }, "There is no directory for DELs that plugins write down; they may make it");
  }
  let watched: Watched | undefined;
  let soon: NodeJS.Timeout | undefined;
  const unwatch = (): void => {
    watched?.watcher.close();
    watched = undefined;
  };
  const lookNow = guarded("cni", () => {
    soon = undefined;
    look();
  });
  const changed = (): void => {
    soon ??= setTimeout(lookNow, gatherMs).unref();
  };
  const round = (): void => {
    // The directory may be removed, and the next plugin makes another.
    const inode = inodeOf(directory);
    if (inode !== watched?.inode) unwatch();
    if (inode !== undefined && watched === undefined)
      watched = watchedAt(directory, inode, changed, unwatch);
    look();
  };
  round();
  const every = setInterval(guarded("cni", round), everyMs).unref();
  return {
    [Symbol.dispose]() {
      clearInterval(every);
      clearTimeout(soon);
      unwatch();
    },
  };
}

/** Undefined where the kernel cannot watch: the periodic look remains. */
function watchedAt(
  directory: string,
  inode: number,
  changed: () => void,
  failed: () => void,
): Watched | undefined {
  try {
    const watcher = watch(directory, { persistent: false }, changed);
    watcher.on("error", failed);
    return { inode, watcher };
  } catch {
    return undefined;
  }
}

/** Undefined where there is none, or podnetd may not look. */
function inodeOf(directory: string): number | undefined {
  try {
    return statSync(directory).ino;
  } catch {
    return undefined;
  }
}
