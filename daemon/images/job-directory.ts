import {
  chmodSync,
  chownSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  rmSync,
} from "node:fs";
import { join } from "node:path";

const own = (path: string): void =>
  lchownSync(path, process.getuid?.() ?? 0, process.getgid?.() ?? 0);

/**
 * Makes an empty directory that podnetd shares with a worker: podnetd owns it, and the worker's
 * group may write to it. (podnetd's service may change owners, but not read what belongs to another
 * user.)
 */
export function makeJobDirectory(directory: string, uid: number | undefined): void {
  removeJobDirectory(directory);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  if (uid === undefined) return;
  chownSync(directory, process.getuid?.() ?? 0, uid);
  chmodSync(directory, 0o770);
}

/**
 * Takes a file from a worker that has ended. Returns whether it is a plain file with one name: the
 * worker could have put anything there. Throws what `node:fs` throws when nothing is there.
 */
export function takeFile(file: string): boolean {
  own(file);
  const found = lstatSync(file);
  return found.isFile() && found.nlink === 1;
}

/**
 * Removes a directory, with all that a worker, which has ended, has made in it. Directories of the
 * worker become podnetd's first, for it may not look into those of others.
 */
export function removeJobDirectory(directory: string): void {
  if (lstatSync(directory, { throwIfNoEntry: false })?.isDirectory() === true) {
    const open = [directory];
    for (let each = open.pop(); each !== undefined; each = open.pop()) {
      own(each);
      chmodSync(each, 0o700);
      for (const entry of readdirSync(each, { withFileTypes: true }))
        if (entry.isDirectory()) open.push(join(each, entry.name));
    }
  }
  rmSync(directory, { recursive: true, force: true });
}
