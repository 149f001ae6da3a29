import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { isPodnetError } from "../../../../core/errors.ts";
import { Database } from "../../../../daemon/store/database.ts";
import { migrations } from "../../../../daemon/store/migrations.ts";

// The tests show several steps of a migration with steps of their own, which never change.
const first = String(migrations[0]);
const second = "ALTER TABLE pods ADD COLUMN colour TEXT; UPDATE pods SET colour = 'blue'";
const third = "CREATE TABLE colours AS SELECT colour FROM pods; UPDATE pods SET reason = 'seen'";
/** Fails at its end, when it has changed everything. */
const failing = `${second}; DELETE FROM leases; DROP INDEX leases_by_owner; SELECT no_such_thing()`;
const fixture = (schema: number): string =>
  readFileSync(join(import.meta.dirname, `../../../fixtures/state-${schema}.sql`), "utf8");

/** The state that a podnetd of that schema has left. */
function leftState(schema = 1): string {
  const directory = mkdtempSync(join(tmpdir(), "podnet-schema-"));
  const raw = new DatabaseSync(join(directory, "state.db"));
  raw.exec(fixture(schema));
  raw.close();
  return directory;
}

/** All there is in a state: its version, its schema, each row of each table. */
function contents(directory: string): unknown {
  const raw = new DatabaseSync(join(directory, "state.db"), { readOnly: true });
  using _raw = { [Symbol.dispose]: () => raw.close() };
  const all = (sql: string): unknown[] => raw.prepare(sql).all();
  const schema = raw.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY name").all();
  const tables = schema.filter(({ type }) => type === "table").map(({ name }) => String(name));
  return [
    all("PRAGMA user_version"),
    schema,
    ...tables.map((name) => [name, all(`SELECT * FROM ${name}`)]),
  ];
}

const versionOf = (directory: string): unknown => {
  const raw = new DatabaseSync(join(directory, "state.db"), { readOnly: true });
  using _raw = { [Symbol.dispose]: () => raw.close() };
  return raw.prepare("PRAGMA user_version").get()?.["user_version"];
};

/** What a state is that was never interrupted. */
function whole(steps: readonly string[]): unknown {
  const directory = leftState();
  Database.openIn(directory, steps).close();
  return contents(directory);
}

test("a state takes every step it has not taken, in order and once", (t) => {
  const directory = leftState();
  for (let again = 0; again < 2; again++) {
    using db = Database.openIn(directory, [first, second, third]);
    t.is(db.get("PRAGMA user_version")?.["user_version"], 3);
    t.is(db.get("SELECT count(*) AS n FROM colours")?.["n"], 8);
    t.deepEqual(
      db.all("SELECT DISTINCT colour, reason FROM pods").map((row) => ({ ...row })),
      [{ colour: "blue", reason: "seen" }],
    );
  }
});

test("a new state takes all steps, and is what an old one becomes", (t) => {
  const directory = mkdtempSync(join(tmpdir(), "podnet-schema-"));
  Database.openIn(directory, [first, second]).close();
  const columns = (of: string): unknown[] => {
    const raw = new DatabaseSync(join(of, "state.db"), { readOnly: true });
    using _raw = { [Symbol.dispose]: () => raw.close() };
    return raw.prepare("SELECT name, type FROM pragma_table_info('pods')").all();
  };
  const old = leftState();
  Database.openIn(old, [first, second]).close();
  t.is(versionOf(directory), 2);
  t.deepEqual(columns(directory), columns(old));
});

test("a step that fails leaves version and rows as they were, says so, and the podnetd of before goes on", (t) => {
  const directory = leftState();
  const before = contents(directory);
  const error = t.throws(() => Database.openIn(directory, [first, failing]));
  t.true(isPodnetError(error) && error.hint !== undefined);
  t.deepEqual(contents(directory), before);
  using db = Database.openIn(directory, [first]);
  t.is(db.get("SELECT count(*) AS n FROM leases WHERE freed_ms IS NULL")?.["n"], 8);
});

test("a step that fails after one that did not leaves what that one made", (t) => {
  const directory = leftState();
  t.throws(() =>
    Database.openIn(directory, [first, third.replace("colour FROM", "name FROM"), failing]),
  );
  t.is(versionOf(directory), 2);
  t.throws(() => Database.openIn(directory, [first]), { code: "STATE_NEWER" });
});

test("a state with everything in it takes the step that comes next, or stays as it was", (t) => {
  const known = migrations.slice(0, 4);
  const directory = leftState(4);
  const before = contents(directory);
  const error = t.throws(() => Database.openIn(directory, [...known, failing]));
  t.true(isPodnetError(error) && error.hint !== undefined);
  t.deepEqual(contents(directory), before);
  using db = Database.openIn(directory, [...known, second]);
  t.is(db.get("PRAGMA user_version")?.["user_version"], 5);
  t.is(db.get("SELECT count(*) AS n FROM pods WHERE colour = 'blue'")?.["n"], 10);
  t.is(db.get("SELECT count(*) AS n FROM pods WHERE before IS NOT NULL")?.["n"], 1);
  t.is(db.get("SELECT count(*) AS n FROM networks WHERE before IS NOT NULL")?.["n"], 1);
  t.is(db.get("SELECT count(*) AS n FROM interfaces WHERE network IS NULL")?.["n"], 3);
});

/** Opens the state in a process of its own, which is killed where the failpoint says. */
function killed(directory: string, at: string): NodeJS.Signals | null {
  const top = join(import.meta.dirname, "../../../..");
  const script = `
    import { Database } from "${top}/daemon/store/database.ts";
    import { armFailpoints } from "${top}/daemon/main/failpoints.ts";
    const [directory, at, ...steps] = JSON.parse(process.argv[1]);
    armFailpoints(at);
    Database.openIn(directory, steps).close();`;
  const argument = JSON.stringify([directory, at, first, second, third]);
  const argv = ["--input-type=module", "-e", script, argument];
  return spawnSync(process.execPath, argv, { timeout: 60_000 }).signal;
}

for (const [at, version] of [
  ["commit:open:before#1", 1],
  ["commit:schema 2:before#1", 1],
  ["commit:schema 2:after#1", 2],
  ["commit:schema 3:before#1", 2],
  ["commit:schema 3:after#1", 3],
  ["commit:open:after#1", 3],
] as const)
  test(`killed at ${at} an upgrade has taken whole steps, and the next start the others`, (t) => {
    const directory = leftState();
    t.is(killed(directory, `${at}=kill`), "SIGKILL");
    t.is(versionOf(directory), version);
    Database.openIn(directory, [first, second, third]).close();
    t.deepEqual(contents(directory), whole([first, second, third]));
  });
