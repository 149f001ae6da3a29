import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { perform } from "../../../core/effect.ts";
import { PodnetError } from "../../../core/errors.ts";

/**
 * Replaces a file at once: readers find the old contents or the new ones, also after a power loss.
 * Throws `SYSCALL_FAILED`.
 */
export function writeWhole(path: string, text: string): void {
  place(path, (temporary) =>
    perform("file", `write ${basename(path)}`, () =>
      writeFileSync(temporary, text, { mode: 0o644 }),
    ),
  );
}

/**
 * Replaces a program as `writeWhole` does a file, unless it is equal. Returns whether it differed.
 */
export function renewWhole(from: string, path: string): boolean {
  const other = !explained(
    path,
    () => existsSync(path) && readFileSync(path).equals(readFileSync(from)),
  );
  if (other) copyWhole(from, path);
  return other;
}

/**
 * Replaces a program as `writeWhole` does a file. The copy is this process's: Node's copyFile gives
 * a file to the owner of its source, after which podnetd, which has CAP_CHOWN and not CAP_FOWNER,
 * could not change its mode.
 */
export function copyWhole(from: string, path: string): void {
  place(path, (temporary) =>
    perform("file", `copy ${basename(path)}`, () => {
      writeFileSync(temporary, readFileSync(from));
      chmodSync(temporary, 0o755);
    }),
  );
}

/**
 * Writes the file alongside its path, and renames it. Other modules write files of their own:
 * subnet.env follows no link, kept plans are never flushed, and the guest's agent and the CNI
 * plugin run without Node.js.
 */
function place(path: string, make: (temporary: string) => void): void {
  const temporary = temporaryOf(path);
  explained(path, () => {
    perform("file", `make directory of ${basename(path)}`, () =>
      mkdirSync(dirname(path), { recursive: true }),
    );
    try {
      make(temporary);
      flush(temporary, basename(path));
      perform("file", `put ${basename(path)} in place`, () => renameSync(temporary, path));
      flush(dirname(path), `directory of ${basename(path)}`);
    } catch (cause) {
      // The disk may be full because of this file.
      perform("file", `remove temporary file of ${basename(path)}`, () =>
        rmSync(temporary, { force: true }),
      );
      throw cause;
    }
  });
}

/** Flushes a file or directory, so that it outlives a power loss. */
function flush(path: string, what: string): void {
  perform("file", `flush ${what}`, () => {
    const fd = openSync(path, "r");
    try {
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
  });
}

/** (A leading dot keeps runtimes from reading it as a list.) */
const temporaryOf = (path: string): string => join(dirname(path), `.${basename(path)}.new`);

/**
 * Removes a file and the temporary file of a podnetd that was killed; returns whether the file
 * existed. Throws `SYSCALL_FAILED`.
 */
export function removeFile(path: string): boolean {
  const there = existsSync(path);
  explained(path, () =>
    perform("file", `remove ${basename(path)}`, () => {
      for (const each of [temporaryOf(path), path]) rmSync(each, { force: true });
    }),
  );
  return there;
}

function explained<T>(path: string, body: () => T): T {
  try {
    return body();
  } catch (cause) {
    throw new PodnetError("SYSCALL_FAILED", `"${path}" cannot be written: ${String(cause)}`, {
      hint: "Let podnetd's user write there (of its systemd unit: ReadWritePaths=), or name other directories",
      cause,
    });
  }
}
