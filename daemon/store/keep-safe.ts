import { guarded } from "../../core/guard.ts";
import type { Log } from "../../linux/log.ts";
import type { Database } from "./database.ts";
import { writeCopy } from "./good-copy.ts";
import { migrations } from "./migrations.ts";

/** Intervals of checkpoints of the log, and of copies of the state, milliseconds. */
const every = { checkpointMs: 60_000, copyMs: 3_600_000 } as const;

export interface KeepSafe {
  readonly db: Database;
  readonly file: string;
  readonly log: Log;
}

/**
 * Copies the log into the database regularly, and keeps a copy of the state that was read
 * completely: now, at intervals, and once more on disposal. Failures are logged: without a copy the
 * state itself is unharmed.
 */
export async function keepSafe(parts: KeepSafe): Promise<AsyncDisposable> {
  const { db, log } = parts;
  await copy(parts);
  const checkpoints = setInterval(
    guarded("store", () => {
      try {
        db.checkpoint();
      } catch (err) {
        log.warn({ err }, "Failed to checkpoint the state's log");
      }
    }),
    every.checkpointMs,
  ).unref();
  const copies = setInterval(
    guarded("store", () => copy(parts)),
    every.copyMs,
  ).unref();
  return {
    async [Symbol.asyncDispose]() {
      clearInterval(checkpoints);
      clearInterval(copies);
      await copy(parts);
    },
  };
}

/** Never rejects. */
async function copy({ db, file, log }: KeepSafe): Promise<void> {
  try {
    await writeCopy(db, file, migrations.length);
  } catch (err) {
    log.warn({ err }, "Failed to copy the state");
  }
}
