import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { openLog } from "../../../../linux/log.ts";
import { Database } from "../../../../daemon/store/database.ts";
import { copyOf, commitsOf, writeCopy } from "../../../../daemon/store/good-copy.ts";
import { keepSafe } from "../../../../daemon/store/keep-safe.ts";
import { getMeta, setMeta } from "../../../../daemon/store/meta.ts";
import { migrations } from "../../../../daemon/store/migrations.ts";

const log = openLog({ component: "test", level: "silent" });
const directory = (): string => mkdtempSync(join(tmpdir(), "podnet-copy-"));

test("a copy of the state is there from the start on, and has all commits at the end", async (t) => {
  const dir = directory();
  const file = join(dir, "state.db");
  {
    using db = Database.openIn(dir);
    await using _safe = await keepSafe({ db, file, log });
    t.is(commitsOf(copyOf(file)), 0);
    setMeta(db, "boot_id", "one");
  }
  using copy = Database.open(copyOf(file));
  t.is(getMeta(copy, "boot_id"), "one");
});

test("what is damaged never takes the place of a good copy", async (t) => {
  const dir = directory();
  const file = join(dir, "state.db");
  using db = Database.openIn(dir);
  for (let i = 0; i < 40; i++) setMeta(db, `overlay ${i}`, "x".repeat(500));
  await writeCopy(db, file, migrations.length);
  const good = readFileSync(copyOf(file));
  setMeta(db, "boot_id", "one");
  const damaged = Object.assign(Object.create(db) as Database, {
    copyTo: async (to: string) => {
      await db.copyTo(to);
      const bytes = readFileSync(to);
      bytes.fill(0xa5, 8192, 12_288);
      writeFileSync(to, bytes);
    },
  });
  // (Private fields are not inherited: these getters would fail by themselves.)
  for (const name of ["commits", "hasRoom"] as const)
    Object.defineProperty(damaged, name, { value: db[name] });
  const error = await t.throwsAsync(writeCopy(damaged, file, migrations.length));
  t.notRegex(String(error), /TypeError/);
  t.deepEqual(readFileSync(copyOf(file)), good);
  await writeCopy(db, file, migrations.length);
  t.is(commitsOf(copyOf(file)), 41);
});
