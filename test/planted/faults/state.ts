import type { Fault } from "../fault.ts";

const store = "test/unit/daemon-store.test.ts";
const pods = "test/unit/daemon-pods.test.ts";
const damage = (what: string) => ({
  file: "test/unit/daemon-damage.test.ts",
  title: `${what}: refused with a hint, and not a byte of it is changed`,
});

/** The state directory: one daemon, durable, refused when it is not as it should be. */
export const stateFaults: readonly Fault[] = [
  {
    kind: "lock",
    name: "two daemons share a state directory",
    file: "daemon/lock.ts",
    find: 'opened.exec("BEGIN EXCLUSIVE");',
    put: 'opened.exec("BEGIN");',
    noticedBy: {
      file: store,
      title: "a state directory has one daemon, and is free at once when that one is killed",
    },
  },
  {
    kind: "lock",
    name: "two daemons look after one network namespace",
    file: "daemon/lock.ts",
    find: '"\\0podnet/daemon"',
    put: "`\\0podnet/daemon${Math.random()}`",
    noticedBy: { file: store, title: "a lock is given back when released" },
  },
  {
    kind: "release",
    name: "the lock of a state directory is never given back",
    file: "daemon/lock.ts",
    find: 'if (held.isOpen) cross("file", "unlock state directory", () => held.close());',
    put: "",
    noticedBy: { file: store, title: "a lock is given back when released" },
  },
  {
    kind: "record",
    name: "a commit may be lost with the power",
    file: "daemon/store/database.ts",
    find: "PRAGMA synchronous = FULL",
    put: "PRAGMA synchronous = NORMAL",
    noticedBy: { file: store, title: "the journal is a WAL and every commit is flushed" },
  },
  {
    kind: "undo",
    name: "a transaction that failed stays open",
    file: "daemon/store/database.ts",
    find: 'if (this.#connection.isTransaction) this.#connection.exec("ROLLBACK");',
    put: 'if (this.#connection.isTransaction) this.#connection.exec("COMMIT");',
    noticedBy: {
      file: store,
      title: "what was committed is there after reopening, what failed is not",
    },
  },
  {
    kind: "record",
    name: "a damaged page is not looked for",
    file: "daemon/store/found.ts",
    find: 'if (check.quick_check !== "ok") throw new Error(check.quick_check);',
    put: "void check;",
    noticedBy: damage("a page in its middle is overwritten"),
  },
  {
    kind: "record",
    name: "an empty state is taken for a new one",
    file: "daemon/store/found.ts",
    find: 'if (statSync(file).size === 0) throw new Error("the file is empty");',
    put: "if (statSync(file).size === 0) return;",
    noticedBy: damage("it is empty"),
  },
  {
    kind: "record",
    name: "a newer state is opened",
    file: "daemon/store/found.ts",
    find: "if (version > known) {",
    put: "if (version > 1_000_000) {",
    noticedBy: damage("a newer podnetd wrote it"),
  },
  {
    kind: "mark",
    name: "another program's database is taken for podnet's",
    file: "daemon/store/found.ts",
    find: "if (version === 0 || lasting.some((table) => !tables.has(table)))",
    put: "if (version === 0 && tables.size > 99)",
    noticedBy: damage("it is another program's database"),
  },
  {
    kind: "record",
    name: "a state is made anew beside the log of a lost one",
    file: "daemon/store/found.ts",
    find: 'if (existsSync(`${file}-wal`) && statSync(`${file}-wal`).size > 0)\n    throw new Error("the file is missing, and its log is there");',
    put: "",
    noticedBy: {
      file: "test/unit/daemon-damage.test.ts",
      title: "what is missing is not made anew beside its log",
    },
  },
  {
    kind: "record",
    name: "a step of the schema has been edited",
    file: "daemon/store/migrations.ts",
    find: "    observed   TEXT,\n",
    put: "",
    noticedBy: {
      file: "test/unit/daemon-upgrade.test.ts",
      title: "a state of schema 1 becomes what one made today is",
    },
  },
  {
    kind: "record",
    name: "a newer podnetd's plan is taken for one of ours",
    file: "daemon/pod/pod-plan.ts",
    find: "if (version !== planVersion) {",
    put: "if (version < planVersion) {",
    noticedBy: {
      file: pods,
      title: "a plan that a newer podnetd stored is refused, not guessed at",
    },
  },
  {
    kind: "repair",
    name: "damage that is met while the state is in use is not told of",
    file: "daemon/store/database.ts",
    find: "this.#tellOfDamage(error);",
    put: "void this.#tellOfDamage;",
    noticedBy: {
      file: "test/unit/daemon-damage.test.ts",
      title: "damage that is met while the state is in use is told of, whoever meets it",
    },
  },
  {
    kind: "record",
    name: "a step of the schema is not one transaction",
    file: "daemon/store/found.ts",
    find: "`BEGIN IMMEDIATE; ${steps[next]}; PRAGMA user_version = ${next + 1}; COMMIT`",
    put: "`${steps[next]}; PRAGMA user_version = ${next + 1}`",
    noticedBy: {
      file: "test/unit/daemon-schema.test.ts",
      title:
        "a step that fails leaves version and rows as they were, says so, and the podnetd of before goes on",
    },
  },
  {
    kind: "undo",
    name: "what could not be undone at a start is forgotten",
    file: "daemon/pod/take-over.ts",
    find: "if (failures.length > 0) throw failures[0];",
    put: "",
    noticedBy: {
      file: pods,
      title: "a machine that ended while nobody watched is called so when nothing of it is left",
    },
  },
];
