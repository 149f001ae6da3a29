import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
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
import { isPodnetError } from "../../../../core/errors.ts";
import { Database } from "../../../../daemon/store/database.ts";
import { getMeta, setMeta } from "../../../../daemon/store/meta.ts";

/**
 * A state directory with some rows in its database, left by a daemon that was killed: its log is
 * not copied yet.
 */
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

/**
 * What befalls the file, what podnetd calls it, and what it says is wrong, where it can know that.
 */
const damages: readonly (readonly [string, (directory: string) => void, string, RegExp?])[] = [
  ["its header is overwritten", (dir) => scribble(file(dir), 0, 100), "STATE_CORRUPT"],
  [
    "a page in its middle is overwritten",
    (dir) => scribble(file(dir), 8 * 4096, 4096),
    "STATE_CORRUPT",
  ],
  ["it is cut", (dir) => truncateSync(file(dir), 5 * 4096), "STATE_CORRUPT"],
  ["it is empty", (dir) => truncateSync(file(dir), 0), "STATE_CORRUPT", /the file is empty/],
  [
    "it is another program's database",
    (dir) => {
      rmSync(file(dir));
      const raw = new DatabaseSync(file(dir));
      raw.exec("CREATE TABLE diary (day TEXT); PRAGMA user_version = 1");
      raw.close();
    },
    "STATE_CORRUPT",
    /another program's database/,
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

for (const [what, damage, code, why = /./] of damages)
  test(`${what}: refused with a hint, and not a byte of it is changed`, (t) => {
    const directory = left();
    damage(directory);
    const before = readFileSync(file(directory));
    const error = t.throws(() => Database.openIn(directory), { code });
    t.true(isPodnetError(error) && error.hint !== undefined);
    t.regex(`${error?.message}: ${String(error?.cause)}`, why);
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

test("what is missing is not made anew alongside its log", (t) => {
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
    const keys = db
      .all("SELECT key FROM meta WHERE key LIKE 'key%'")
      .map(({ key }) => Number(String(key).slice(3)));
    t.deepEqual(
      keys.toSorted((a, b) => a - b),
      [...keys.keys()],
      "a beginning of what was written",
    );
    setMeta(db, "boot_id", "two");
    t.is(getMeta(db, "boot_id"), "two");
  }
});

/** The files of a state whose podnetd was killed, with the mark that counts commits. */
function killed(): string {
  const directory = mkdtempSync(join(tmpdir(), "podnet-damage-"));
  using db = Database.openIn(directory);
  for (let i = 0; i < 40; i++) setMeta(db, `overlay ${i}`, "x".repeat(500));
  const copy = mkdtempSync(join(tmpdir(), "podnet-damage-"));
  for (const name of ["state.db", "state.db-wal", "state.db-mark"])
    copyFileSync(join(directory, name), join(copy, name));
  return copy;
}

/** Losses that SQLite takes for the end of a log, or for a state as good as any. */
const losses: readonly (readonly [string, (directory: string) => void])[] = [
  [
    "one bit of its log is another",
    (dir) => {
      const log = readFileSync(`${file(dir)}-wal`);
      log[Math.floor(log.length / 2)]! ^= 1;
      writeFileSync(`${file(dir)}-wal`, log);
    },
  ],
  [
    "one bit of its log's last commit is another",
    (dir) => {
      const log = readFileSync(`${file(dir)}-wal`);
      log[log.length - 100]! ^= 1;
      writeFileSync(`${file(dir)}-wal`, log);
    },
  ],
  [
    "its log is cut",
    (dir) => truncateSync(`${file(dir)}-wal`, readFileSync(`${file(dir)}-wal`).length - 1),
  ],
  ["its log is empty", (dir) => truncateSync(`${file(dir)}-wal`, 0)],
  ["its log is deleted", (dir) => rmSync(`${file(dir)}-wal`)],
  [
    "an older copy is in its place",
    (dir) => {
      const older = mkdtempSync(join(tmpdir(), "podnet-damage-"));
      Database.openIn(older).close();
      rmSync(`${file(dir)}-wal`);
      copyFileSync(file(older), file(dir));
    },
  ],
];

for (const [what, damage] of losses)
  test(`${what}: commits are missing, so it is refused, and not a byte of it is changed`, (t) => {
    const directory = killed();
    damage(directory);
    // (A log that is missing is made, empty: that says as little.)
    const files = (): readonly string[] =>
      ["state.db", "state.db-wal", "state.db-mark"].map((name) => {
        const path = join(directory, name);
        const bytes = existsSync(path) ? readFileSync(path) : Buffer.alloc(0);
        return createHash("sha256").update(bytes).digest("hex");
      });
    const before = files();
    const error = t.throws(() => Database.openIn(directory), { code: "STATE_CORRUPT" });
    t.true(isPodnetError(error) && /podnetd state adopt/.test(error.hint ?? ""));
    t.regex(error?.message ?? "", /has \d+ commits, and had 40/);
    t.deepEqual(files(), before);
    Database.openIn(directory, undefined, { evenOlder: true }).close();
    t.notThrows(() => Database.openIn(directory).close(), "an administrator went on with it");
  });

test("a podnetd that is killed at any moment of a commit is not taken for a loss", (t) => {
  const directory = killed();
  const mark = `${file(directory)}-mark`;
  const whole = readFileSync(mark, "latin1");
  const opens = (what: string): void => {
    t.notThrows(() => Database.openIn(directory).close(), what);
  };
  opens("after it");
  rmSync(mark);
  opens("before the first mark is made");
  t.is(readFileSync(mark, "latin1"), whole);
  writeFileSync(mark, "");
  opens("before it is written");
  const other = whole.replace(/ [\da-f-]{36} /, " 00000000-0000-0000-0000-000000000000 ");
  for (const text of [whole.replace(/00040 /, "90040 "), other, "noise"]) {
    writeFileSync(mark, text);
    opens("a mark that is damaged itself, or another boot's, accuses no file");
  }
});

test("a mark that cannot be opened at the start is made by a later commit", (t) => {
  const directory = left();
  const mark = `${file(directory)}-mark`;
  rmSync(mark);
  mkdirSync(mark);
  using db = Database.openIn(directory);
  setMeta(db, "boot_id", "one");
  rmSync(mark, { recursive: true });
  setMeta(db, "boot_id", "two");
  t.regex(readFileSync(mark, "latin1"), new RegExp(` 0*${db.commits} `));
});

test("what is written is in the database itself soon, not in its log alone", (t) => {
  const directory = mkdtempSync(join(tmpdir(), "podnet-damage-"));
  using db = Database.openIn(directory);
  const inDatabase = (): boolean => readFileSync(file(directory)).includes("kept apart");
  setMeta(db, "overlay x", "kept apart");
  t.false(inDatabase());
  db.checkpoint();
  t.true(inDatabase());
});

test("a daemon killed while it makes its state leaves nothing that is taken for one", (t) => {
  const directory = mkdtempSync(join(tmpdir(), "podnet-damage-"));
  writeFileSync(join(directory, "state.db.new"), "half");
  using db = Database.openIn(directory);
  t.is(getMeta(db, "boot_id"), undefined);
  t.false(existsSync(join(directory, "state.db.new")));
});

test("damage that is met while the state is in use is reported, whoever meets it", (t) => {
  const directory = left();
  using db = Database.openIn(directory);
  const reported: string[] = [];
  db.whenDamaged(({ code, hint }) => reported.push(`${code} ${hint}`));
  const other = new DatabaseSync(file(directory));
  using _other = { [Symbol.dispose]: () => other.close() };
  other.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  // All but the first page, which holds the schema.
  scribble(file(directory), 4096, readFileSync(file(directory)).length - 4096);
  // Another's commit is why the file is read again, and not what is remembered of it.
  other.exec("PRAGMA user_version = 1");
  t.throws(() => db.all("SELECT value FROM meta"), { code: "STATE_CORRUPT" });
  t.is(reported.length, 1);
  t.regex(reported[0] ?? "", /^STATE_CORRUPT .*never deletes it/);
  // What is wrong with a statement is no damage.
  t.throws(() => db.all("SELECT nothing"));
  t.is(reported.length, 1);
});
