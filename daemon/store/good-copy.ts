import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync, statSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { perform, performAsync } from "../../core/effect.ts";
import type { Database } from "./database.ts";
import { commitsIn, refuseUnfit } from "./found.ts";

/** Where the last good copy of a state is. */
export const copyOf = (file: string): string => `${file}-copy`;

/** Largest state of which a copy is kept, bytes: it takes its room once more. */
const largest = 256 * 2 ** 20;

/**
 * Writes a copy of the state and gives it its name when it has been read whole: what is damaged
 * never takes the place of what is good. Nothing is written when the copy that is there has all
 * commits. Throws what SQLite and `node:fs` throw.
 */
export async function writeCopy(db: Database, file: string, schema: number): Promise<void> {
  // The remaining room is for the state itself.
  if (!db.hasRoom || commitsOf(copyOf(file)) === db.commits || statSync(file).size > largest)
    return;
  const temporary = `${file}-draft`;
  await performAsync("commit", "copy state", async () => {
    removeTemporary(temporary);
    try {
      await db.copyTo(temporary);
      lookAtTemporary(temporary, schema);
      const fd = openSync(temporary, "r");
      fsyncSync(fd);
      closeSync(fd);
      renameSync(temporary, copyOf(file));
    } finally {
      removeTemporary(temporary);
    }
  });
}

/** Checks the copy and throws the defect it finds. It needs no log from then on, and gets none. */
function lookAtTemporary(temporary: string, schema: number): void {
  {
    const copy = new DatabaseSync(temporary);
    using _copy = { [Symbol.dispose]: () => copy.close() };
    copy.exec("PRAGMA journal_mode = DELETE");
  }
  refuseUnfit(temporary, schema);
}

function removeTemporary(temporary: string): void {
  for (const each of [temporary, `${temporary}-journal`, `${temporary}-wal`, `${temporary}-shm`])
    if (existsSync(each)) perform("commit", "remove temporary file of copy", () => rmSync(each));
}

/**
 * How many commits a state has had that is not in use; undefined when it is not there, or cannot be
 * read.
 */
export function commitsOf(file: string): number | undefined {
  if (!existsSync(file)) return undefined;
  try {
    const found = new DatabaseSync(file, { readOnly: true });
    using _found = { [Symbol.dispose]: () => found.close() };
    return commitsIn(found);
  } catch {
    return undefined;
  }
}
