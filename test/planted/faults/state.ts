import type { Fault } from "../fault.ts";

const store = "test/unit/daemon/store/store.test.ts";
const pods = "test/unit/daemon/pods/pods.test.ts";
const damage = (what: string) => ({
  file: "test/unit/daemon/store/damage.test.ts",
  title: `${what}: refused with a hint, and not a byte of it is changed`,
});

const lost = (what: string) => ({
  file: "test/unit/daemon/store/damage.test.ts",
  title: `${what}: commits are missing, so it is refused, and not a byte of it is changed`,
});

const damagedRow = (what: string) => ({
  file: "test/unit/daemon/store/damaged-rows.test.ts",
  title: `${what}: that pod alone is refused, and a delete by force ends it`,
});

const damagedContainers = {
  file: "test/cni/damaged.test.ts",
  title:
    "containers whose records are damaged are refused alone: podnetd starts, all others work, and DEL removes them",
};

/** The state directory: one daemon, durable, refused when it is not as it should be. */
export const stateFaults: readonly Fault[] = [
  {
    kind: "lock",
    name: "two daemons share a state directory",
    file: "daemon/store/lock.ts",
    find: "BEGIN EXCLUSIVE",
    put: "BEGIN",
    noticedBy: {
      file: store,
      title: "a state directory has one daemon, and is free at once when that one is killed",
    },
  },
  {
    kind: "lock",
    name: "two daemons look after one network namespace",
    file: "daemon/store/lock.ts",
    find: '"\\0podnet/daemon"',
    put: "`\\0podnet/daemon${Math.random()}`",
    noticedBy: { file: store, title: "a lock is given back when released" },
  },
  {
    kind: "release",
    name: "the lock of a state directory is never given back",
    file: "daemon/store/lock.ts",
    find: 'if (held.isOpen) perform("file", `unlock ${name}`, () => held.close());',
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
    name: "a state is made anew alongside the log of a lost one",
    file: "daemon/store/found.ts",
    find: 'if (existsSync(`${file}-wal`) && statSync(`${file}-wal`).size > 0)\n    throw new Error("the file is missing, and its log is there");',
    put: "",
    noticedBy: {
      file: "test/unit/daemon/store/damage.test.ts",
      title: "what is missing is not made anew alongside its log",
    },
  },
  {
    kind: "record",
    name: "a step of the schema has been edited",
    file: "daemon/store/migrations.ts",
    find: "    observed   TEXT,\n",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/store/upgrade.test.ts",
      title: "a state of schema 1 becomes what one made today is",
    },
  },
  {
    kind: "record",
    name: "a newer podnetd's plan is taken for one of ours",
    file: "daemon/store/stored-version.ts",
    find: "if (version === known) return;",
    put: "if (Number(version) >= known) return;",
    noticedBy: {
      file: pods,
      title: "a plan that a newer podnetd stored is refused, not guessed at",
    },
  },
  {
    kind: "record",
    name: "a nonsense version of one pod's plan is taken for a newer podnetd's",
    file: "daemon/store/stored-version.ts",
    find: "if (found < 1 || found > known + newestAhead)",
    put: "if (found < 1)",
    noticedBy: damagedRow("its version is far ahead"),
  },
  {
    kind: "bound",
    name: "a stored plan may publish any number of ports",
    file: "daemon/store/check.ts",
    find: "within(1, maxPorts)",
    put: "within(1, Number.MAX_SAFE_INTEGER)",
    noticedBy: damagedRow("it publishes more ports than there are"),
  },
  {
    kind: "record",
    name: "a container's stored plan is accepted unchecked",
    file: "daemon/containers/attachment-rows.ts",
    find: "if (trouble !== undefined) throw damaged(trouble);",
    put: "void trouble;",
    noticedBy: damagedContainers,
    slow: true,
  },
  {
    kind: "mark",
    name: "a container's plan may be another's",
    file: "daemon/containers/attachment-rows.ts",
    find: "    requireOwn(plan, columns);\n",
    put: "",
    noticedBy: damagedContainers,
    slow: true,
  },
  {
    kind: "record",
    name: "a container's damaged record ends podnetd's start",
    file: "daemon/containers/attachment-rows.ts",
    find: 'if (isPodnetError(thrown, "STATE_NEWER")) throw thrown;',
    put: "throw thrown;",
    noticedBy: damagedContainers,
    slow: true,
  },
  {
    kind: "record",
    name: "a container on its way out loses its address when its record is damaged",
    file: "daemon/ipam/store.ts",
    find: "WHERE leases.network = ? AND owner_kind = 'attachment' AND state = 'deleting'",
    put: "WHERE leases.network = ? AND owner_kind = 'attachment' AND freed_ms IS NULL",
    noticedBy: {
      file: "test/unit/daemon/containers/teardown-queue.test.ts",
      title:
        "a container on its way out keeps its address over a start, though its record is damaged",
    },
  },
  {
    kind: "record",
    name: "a stored plan is taken for good without a look at it",
    file: "daemon/pods/store/pod-plan.ts",
    find: "if (trouble !== undefined) throw damaged(trouble);",
    put: "void trouble;",
    noticedBy: damagedRow("its address is undefined"),
  },
  {
    kind: "record",
    name: "a pod's row that makes no sense is every pod's",
    file: "daemon/pods/store/pod-rows.ts",
    find: 'if (isPodnetError(thrown, "STATE_NEWER")) throw thrown;',
    put: "throw thrown;",
    noticedBy: damagedRow("its plan is no JSON"),
  },
  {
    kind: "access",
    name: "a damaged plan may name any directory for its machine's",
    file: "daemon/pods/store/check-plan.ts",
    find: "!path.endsWith(`/${podId}`)",
    put: '!path.startsWith("/")',
    noticedBy: damagedRow("its machine's directory is everything"),
  },
  {
    kind: "record",
    name: "one plan that is no JSON breaks what is asked of all plans",
    file: "daemon/pods/store/stored-plans.ts",
    find: "return db.all(sql(readable), ...values);",
    put: 'return db.all(sql("pods"), ...values);',
    noticedBy: damagedRow("its plan is no JSON"),
  },
  {
    kind: "mark",
    name: "the machine of a damaged pod is ended by a pid that may be another's",
    file: "daemon/pods/lifecycle/damaged-pod.ts",
    find: "livePod({ plan: remains, spec: unknownSpec })",
    put: "livePod({ plan: remains, spec: unknownSpec }, records.run(id))",
    noticedBy: {
      file: "test/unit/daemon/store/damaged-rows.test.ts",
      title:
        "of a damaged pod of which no plan is kept other rows and its directories say what goes",
    },
  },
  {
    kind: "repair",
    name: "damage that is met while the state is in use is not reported",
    file: "daemon/store/database.ts",
    find: "this.#reportDamage(error);",
    put: "void this.#reportDamage;",
    noticedBy: {
      file: "test/unit/daemon/store/damage.test.ts",
      title: "damage that is met while the state is in use is reported, whoever meets it",
    },
  },
  {
    kind: "record",
    name: "a step of the schema is not one transaction",
    file: "daemon/store/found.ts",
    find: '      connection.exec("BEGIN IMMEDIATE");\n      if (typeof step === "function") step(connection);\n      else connection.exec(step ?? "");\n      connection.exec(`PRAGMA user_version = ${next + 1}; COMMIT`);\n',
    put: '      if (typeof step === "function") step(connection);\n      else connection.exec(step ?? "");\n      connection.exec(`PRAGMA user_version = ${next + 1}`);\n',
    noticedBy: {
      file: "test/unit/daemon/store/schema.test.ts",
      title:
        "a step that fails leaves version and rows as they were, says so, and the podnetd of before goes on",
    },
  },
  {
    kind: "undo",
    name: "what could not be undone at a start is forgotten",
    file: "daemon/pods/lifecycle/take-over.ts",
    find: "if (failures.length > 0) throw failures[0];",
    put: "",
    noticedBy: {
      file: pods,
      title: "a machine that ended while unwatched is called so when nothing of it is left",
    },
  },
  {
    kind: "lock",
    name: "two daemons share a run directory",
    file: "daemon/main/daemon.ts",
    find: "opened.use(lockPlaces(configured));",
    put: "",
    noticedBy: {
      file: "test/vm/daemon-state.test.ts",
      title:
        "a podnetd with another state, but the run directory or the socket of the first, is refused and ends nothing",
    },
    slow: true,
  },
  {
    kind: "lock",
    name: "a directory that another podnetd has counts as free",
    file: "linux/files/file-lock.ts",
    find: "flock(fd, LOCK_EX | LOCK_NB) === 0",
    put: "flock(fd, 8) === 0",
    noticedBy: {
      file: store,
      title:
        "a run directory, disks and sockets are one podnetd's, by whatever path another one names them",
    },
  },
  {
    kind: "record",
    name: "PODNET_SOCKET moves podnetd's own socket",
    file: "daemon/config/schema.ts",
    find: '{ socket: "PODNETD_SOCKET" }',
    put: "{}",
    noticedBy: {
      file: "test/unit/daemon/config/config.test.ts",
      title: "the socket that the command podnet is notified of is not podnetd's own",
    },
  },
  {
    kind: "record",
    name: "commits that are missing are not looked for",
    file: "daemon/store/found.ts",
    find: "if (commits >= wanted) return;",
    put: "if (commits >= 0) return;",
    noticedBy: lost("one bit of its log is another"),
  },
  {
    kind: "record",
    name: "commits are not counted",
    file: "daemon/store/database.ts",
    find: "    try {\n      this.#mark.write(this.#commits);",
    put: "    try {\n      void this.#mark;",
    noticedBy: lost("its log is deleted"),
  },
  {
    kind: "bound",
    name: "a mark of another boot, or a damaged one, accuses a state",
    file: "daemon/store/commit-mark.ts",
    find: 'return text === lineOf(bootId, read).toString("latin1") ? read : undefined;',
    put: "return read;",
    noticedBy: {
      file: "test/unit/daemon/store/damage.test.ts",
      title: "a podnetd that is killed at any moment of a commit is not taken for a loss",
    },
  },
  {
    kind: "record",
    name: "a copy of the state is not read before it is kept",
    file: "daemon/store/good-copy.ts",
    find: "lookAtTemporary(temporary, schema);",
    put: "void lookAtTemporary;\n      void schema;",
    noticedBy: {
      file: "test/unit/daemon/store/copy-state.test.ts",
      title: "what is damaged never takes the place of a good copy",
    },
  },
  {
    kind: "bound",
    name: "a pipe among pending DELs is waited for",
    file: "daemon/containers/cni/pending-dels.ts",
    find: "return readRegular(path, limit);",
    put: 'void limit;\n    return process.getBuiltinModule("node:fs").readFileSync(path);',
    noticedBy: {
      file: "test/unit/daemon/containers/pending-dels.test.ts",
      title: "a pipe, a link and a record without end among those written down hold up no other",
    },
    slow: true,
    shows: "hang",
  },
];
