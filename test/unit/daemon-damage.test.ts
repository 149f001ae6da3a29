import {
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { isPodnetError } from "../../core/errors.ts";
import { Database } from "../../daemon/store/database.ts";
import { getMeta, setMeta } from "../../daemon/store/meta.ts";

/** A state directory with some rows in its database, left by a daemon that was killed: its log is not copied yet. */
function left(closed = true): string {
  const directory = mkdtempSync(join(tmpdir(), "podnet-damage-"));
  const db = Database.openIn(directory);
  for (let i = 0; i < 200; i++)
    db.run("INSERT INTO meta (key, value) VALUES (?, ?)", `key${i}`, "x".repeat(500));
  setMeta(db, "boot_id", "one");
  if (closed) {
    db.close();
    return directory;
  }
  // As a kill leaves it: the files, without the end that copies the log.
  const copy = mkdtempSync(join(tmpdir(), "podnet-damage-"));
  for (const name of ["state.db", "state.db-wal"])
    writeFileSync(join(copy, name), readFileSync(join(directory, name)));
  db.close();
  return copy;
}

const file = (directory: string): string => join(directory, "state.db");

function scribble(path: string, at: number, bytes: number): void {
  const fd = openSync(path, "r+");
  writeSync(fd, Buffer.alloc(bytes, 0xa5), 0, bytes, at);
}

/** What befalls the file, and what podnetd calls it. */
const damages: readonly (readonly [string, (directory: string) => void, string])[] = [
  ["its header is overwritten", (dir) => scribble(file(dir), 0, 100), "STATE_CORRUPT"],
  [
    "a page in its middle is overwritten",
    (dir) => scribble(file(dir), 8 * 4096, 4096),
    "STATE_CORRUPT",
  ],
  ["it is cut", (dir) => truncateSync(file(dir), 5 * 4096), "STATE_CORRUPT"],
  ["it is empty", (dir) => truncateSync(file(dir), 0), "STATE_CORRUPT"],
  [
    "it is another program's database",
    (dir) => {
      rmSync(file(dir));
      const raw = new DatabaseSync(file(dir));
      raw.exec("CREATE TABLE diary (day TEXT); PRAGMA user_version = 1");
      raw.close();
    },
    "STATE_CORRUPT",
  ],
  [
    "it is no database",
    (dir) => writeFileSync(file(dir), "a letter\n".repeat(999)),
    "STATE_CORRUPT",
  ],
  [
    "a newer podnetd wrote it",
    (dir) => {
      const raw = new DatabaseSync(file(dir));
      raw.exec("PRAGMA user_version = 999");
      raw.close();
    },
    "STATE_NEWER",
  ],
];

for (const [what, damage, code] of damages)
  test(`${what}: refused with a hint, and not a byte of it is changed`, (t) => {
    const directory = left();
    damage(directory);
    const before = readFileSync(file(directory));
    const error = t.throws(() => Database.openIn(directory), { code });
    t.true(isPodnetError(error) && error.hint !== undefined);
    t.deepEqual(readFileSync(file(directory)), before);
  });

test("a newer state with a log that is not copied yet is not touched either", (t) => {
  const directory = left();
  const raw = new DatabaseSync(file(directory));
  raw.exec("PRAGMA journal_mode = WAL; PRAGMA user_version = 999");
  const copy = mkdtempSync(join(tmpdir(), "podnet-damage-"));
  const names = ["state.db", "state.db-wal"];
  for (const name of names) writeFileSync(join(copy, name), readFileSync(join(directory, name)));
  raw.close();
  const before = names.map((name) => readFileSync(join(copy, name)));
  t.throws(() => Database.openIn(copy), { code: "STATE_NEWER" });
  t.deepEqual(
    names.map((name) => readFileSync(join(copy, name))),
    before,
  );
});

test("what is missing is not made anew beside its log", (t) => {
  const directory = left(false);
  rmSync(file(directory));
  t.throws(() => Database.openIn(directory), { code: "STATE_CORRUPT" });
  t.false(existsSync(file(directory)));
});

test("of a log that was cut whole transactions are lost, never half of one", (t) => {
  for (const share of [0.1, 0.35, 0.5, 0.75, 0.99]) {
    const directory = left(false);
    const log = `${file(directory)}-wal`;
    truncateSync(log, Math.floor(readFileSync(log).length * share));
    using db = Database.openIn(directory);
    const keys = db.all("SELECT key FROM meta").map(({ key }) => Number(String(key).slice(3)));
    t.deepEqual(
      keys.toSorted((a, b) => a - b),
      [...keys.keys()],
      "a beginning of what was written",
    );
    setMeta(db, "boot_id", "two");
    t.is(getMeta(db, "boot_id"), "two");
  }
});

test("a daemon killed while it makes its state leaves nothing that is taken for one", (t) => {
  const directory = mkdtempSync(join(tmpdir(), "podnet-damage-"));
  writeFileSync(join(directory, "state.db.new"), "half");
  using db = Database.openIn(directory);
  t.is(getMeta(db, "boot_id"), undefined);
  t.false(existsSync(join(directory, "state.db.new")));
});

test("damage that is met while the state is in use is told of, whoever meets it", (t) => {
  const directory = left();
  using db = Database.openIn(directory);
  const told: string[] = [];
  db.whenDamaged(({ code, hint }) => told.push(`${code} ${hint}`));
  const other = new DatabaseSync(file(directory));
  using _other = { [Symbol.dispose]: () => other.close() };
  other.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  // All but the first page, which holds the schema.
  scribble(file(directory), 4096, readFileSync(file(directory)).length - 4096);
  // Another's commit is why the file is read again, and not what is remembered of it.
  other.exec("PRAGMA user_version = 1");
  t.throws(() => db.all("SELECT value FROM meta"), { code: "STATE_CORRUPT" });
  t.is(told.length, 1);
  t.regex(told[0] ?? "", /^STATE_CORRUPT .*never deletes it/);
  // What is wrong with a statement is no damage.
  t.throws(() => db.all("SELECT nothing"));
  t.is(told.length, 1);
});
