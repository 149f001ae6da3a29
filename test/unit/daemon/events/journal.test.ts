import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { systemClock } from "../../../../core/clock.ts";
import { type Side, watchEffects } from "../../../../core/effect.ts";
import { Journal, type NewEvent } from "../../../../daemon/events/journal.ts";
import { Database } from "../../../../daemon/store/database.ts";
import { openLog } from "../../../../linux/log.ts";

const directory = mkdtempSync(path.join(tmpdir(), "podnet-commits-"));
const db = Database.openIn(directory);
/** The lines of podnetd's log. */
const said: string[] = [];
const log = openLog({ component: "store", to: { write: (line) => said.push(line) } });
const journal = new Journal(db, systemClock, log);
test.after.always(() => {
  db.close();
  rmSync(directory, { recursive: true, force: true });
});
test.afterEach.always(() => {
  watchEffects(undefined);
  said.length = 0;
});

const event = (text: string): NewEvent => ({
  kind: "updated",
  podId: "p" as never,
  podName: "n" as never,
  data: { text },
});

/** Every commit throws on that side. */
function failing(at: Side): void {
  watchEffects({
    at(_effect, side) {
      if (side === at) throw new Error(`the commit fails ${at}`);
    },
    async atAsync() {},
  });
}

async function stored(): Promise<string[]> {
  const events = await Array.fromAsync({
    [Symbol.asyncIterator]: () => journal.watch(0, AbortSignal.abort()),
  });
  return events.map(({ data }) => data.text);
}

test.serial("a commit that throws and is there counts, and is reported", async (t) => {
  const stop = new AbortController();
  const reader = journal.watch(journal.newest, stop.signal);
  const reported = reader.next();
  failing("after");
  t.notThrows(() => journal.emit(event("there")));
  t.is((await reported).value?.data.text, "there");
  t.is((await stored()).at(-1), "there");
  t.regex(said.join(""), /"commit":"updated".*the commit fails after.*is there all the same/);
  await reader.return(undefined);
});

test.serial("a commit that throws and is not there does not count", async (t) => {
  failing("before");
  t.throws(() => journal.emit(event("not there")), { message: "the commit fails before" });
  t.false((await stored()).includes("not there"));
  // Only the caller gets the error.
  t.deepEqual(said, []);
});

test.serial("what throws within a larger transaction is the larger one's to judge", async (t) => {
  const report = (): void =>
    journal.transact("part", (emit) => {
      emit(event("part"));
      throw new Error("in the middle");
    });
  t.throws(() => db.transaction(report), { message: "in the middle" });
  t.false((await stored()).includes("part"));
});
