import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { damaged } from "./rows.ts";

/** SQLite's extended codes keep the primary one in the low byte. */
const extendedCode = (thrown: unknown): number =>
  thrown instanceof Error && "errcode" in thrown ? Number(thrown.errcode) : 0;
const sqliteCode = (thrown: unknown): number => extendedCode(thrown) & 0xff;
const unwritable = new Set([3, 8, 10, 13, 14]); // PERM, READONLY, IOERR, FULL, CANTOPEN
/**
 * SQLite's errors on a full filesystem: of a write, of its index in shared memory (IOERR), and of a
 * file to be created.
 */
const withoutRoom: ReadonlySet<unknown> = new Set([10, 13, 14]);
const corrupt = new Set([11, 26]); // CORRUPT, NOTADB

/** An error of a database that cannot be opened: `STATE_CORRUPT` unless it says otherwise. */
export function openError(path: string, cause: unknown): PodnetError {
  if (isPodnetError(cause)) return cause;
  // An error of `node:fs`: SQLite's own code is ERR_SQLITE_ERROR.
  const { code = "" } = cause as NodeJS.ErrnoException;
  if (/^E[A-Z]+$/.test(code)) return unwritableError(cause);
  if (unwritable.has(sqliteCode(cause))) return writeError(cause) as PodnetError;
  return new PodnetError("STATE_CORRUPT", `State "${path}" cannot be read`, {
    hint: "Restore it from a backup; or stop the pods, move the file away and start anew. podnetd never deletes it",
    cause,
  });
}

/** Whether an error may be because the filesystem has no room or no inode left. */
export function lacksRoom(thrown: unknown): boolean {
  if (!isPodnetError(thrown, "STATE_UNWRITABLE")) return false;
  const { code } = thrown.details;
  return (
    (typeof code === "number" && withoutRoom.has(code & 0xff)) ||
    (thrown.cause as NodeJS.ErrnoException | undefined)?.code === "ENOSPC"
  );
}

/** Converts SQLite's error of a statement; returns other errors unchanged. */
export function writeError(cause: unknown): unknown {
  const code = sqliteCode(cause);
  if (corrupt.has(code)) return damaged(cause instanceof Error ? cause.message : "", cause);
  return unwritable.has(code) ? unwritableError(cause) : cause;
}

/** `STATE_UNWRITABLE`, with what SQLite or the kernel said. */
export function unwritableError(cause: unknown): PodnetError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new PodnetError("STATE_UNWRITABLE", `The state database cannot be written: ${reason}`, {
    hint: "Check free space and permissions of the state directory",
    details: { sqlite: reason, code: extendedCode(cause) },
    cause,
  });
}
