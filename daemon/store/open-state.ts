import { guarded } from "../../core/guard.ts";
import { join } from "node:path";
import type { Log } from "../../linux/log.ts";
import { Database } from "./database.ts";
import { Reserve } from "./reserve.ts";
import { lacksRoom } from "./sqlite-error.ts";

/** Between two looks for room, milliseconds. */
const lookEveryMs = 5000;

/**
 * Opens the state of a state directory with its reserve. On a full filesystem the reserve is
 * released; when even that is not enough the state is opened to be read, and written to once there
 * is room. Throws as `Database.open` does.
 */
export function openState(stateDir: string, log: Log): Database {
  const reserve = Reserve.open(stateDir, log);
  const db = openSomehow(join(stateDir, "state.db"), reserve, log);
  db.useReserve(reserve);
  return db;
}

function openSomehow(path: string, reserve: Reserve, log: Log): Database {
  try {
    return Database.open(path);
  } catch (thrown) {
    if (!lacksRoom(thrown)) throw thrown;
  }
  try {
    if (reserve.release()) return Database.open(path);
  } catch (thrown) {
    if (!lacksRoom(thrown)) throw thrown;
  }
  const db = Database.openWithoutRoom(path);
  log.error(
    { hint: "Free space in the state directory; podnetd then continues by itself" },
    "The state directory is full: pods can be listed and deleted, but nothing new is accepted",
  );
  return db;
}

/** Makes the reserve again, and writes what had to wait, as soon as there is room. */
export function watchRoom(db: Database, log: Log): Disposable {
  const timer = setInterval(
    guarded("store", () => {
      if (db.hasRoom) return;
      try {
        db.lookForRoom();
        if (db.hasRoom) log.info({}, "The state directory has space again");
      } catch {
        // The lack of room has been logged.
      }
    }),
    lookEveryMs,
  );
  timer.unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}
