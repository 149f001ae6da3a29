import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { isPodnetError } from "../../../../core/errors.ts";
import type { Config } from "../../../../daemon/config/config.ts";
import { lockCgroups, lockNetns, lockPlaces, lockState } from "../../../../daemon/store/lock.ts";
import { Database } from "../../../../daemon/store/database.ts";
import {
  eventBounds,
  eventLimit,
  eventsAfter,
  insertEvent,
  skipLostCursors,
} from "../../../../daemon/events/store.ts";
import { freeLease, insertLease, listLeases, pruneLeases } from "../../../../daemon/ipam/store.ts";
import { getMeta, setMeta } from "../../../../daemon/store/meta.ts";
import { putNetwork } from "../../../../daemon/networks/store.ts";
import { insertPod, setPodState } from "../../../../daemon/pods/store/pods.ts";
import type { PodState } from "../../../../daemon/pods/store/pod-row.ts";
import { uidsOfPods } from "../../../../daemon/pods/store/stored-plans.ts";
import { definition, readyRow } from "../../../lab/network-definition.ts";
import {
  finishRequestsOf,
  getRequest,
  insertRequest,
  requestLimits,
} from "../../../../daemon/pods/store/request-rows.ts";

const directory = (): string => mkdtempSync(join(tmpdir(), "podnet-store-"));

test("the journal is a WAL and every commit is flushed", (t) => {
  using db = Database.openIn(directory());
  t.is(db.get("PRAGMA journal_mode")?.["journal_mode"], "wal");
  t.is(db.get("PRAGMA synchronous")?.["synchronous"], 2);
  t.is(db.get("PRAGMA foreign_keys")?.["foreign_keys"], 1);
});

test("what need not survive a loss of power is not flushed; what is committed next is", (t) => {
  const dir = directory();
  {
    using db = Database.openIn(dir);
    const flushes = (): unknown => db.get("PRAGMA synchronous")?.["synchronous"];
    const during = (lasting: "always" | "boot"): unknown =>
      db.transaction(
        () => {
          setMeta(db, "boot_id", lasting);
          return flushes();
        },
        "change",
        lasting,
      );
    t.deepEqual([during("boot"), during("boot"), during("always"), during("boot")], [1, 1, 2, 1]);
    setMeta(db, "network_memory", "flushed");
    t.is(flushes(), 2);
    during("boot");
  }
  using db = Database.openIn(dir);
  t.is(getMeta(db, "boot_id"), "boot");
});

test("what was committed is there after reopening, what failed is not", (t) => {
  const dir = directory();
  {
    using db = Database.openIn(dir);
    setMeta(db, "boot_id", "one");
    t.throws(() =>
      db.transaction(() => {
        setMeta(db, "boot_id", "two");
        throw new Error("changed my mind");
      }),
    );
  }
  using db = Database.openIn(dir);
  t.is(getMeta(db, "boot_id"), "one");
});

test("cursors that may have been sent and lost with the power are not used again", (t) => {
  using db = Database.openIn(directory());
  skipLostCursors(db);
  t.is(eventBounds(db).newest, 0);
  const report = (): number =>
    insertEvent(db, { kind: "attachment", timeMs: 0, data: { text: "" } }).cursor;
  t.is(report(), 1);
  skipLostCursors(db);
  t.is(report(), 1002);
  t.deepEqual(eventBounds(db), { oldest: 1, newest: 1002 });
  t.deepEqual(
    eventsAfter(db, 1, eventLimit).map(({ cursor }) => cursor),
    [1002],
  );
});

test("a newer schema is refused and left as it is", (t) => {
  const dir = directory();
  Database.openIn(dir).close();
  const raw = new DatabaseSync(join(dir, "state.db"));
  raw.exec("PRAGMA user_version = 999");
  raw.close();
  t.throws(() => Database.openIn(dir), { code: "STATE_NEWER" });
  const again = new DatabaseSync(join(dir, "state.db"));
  t.is(again.prepare("PRAGMA user_version").get()?.["user_version"], 999);
  again.close();
});

test("a damaged file is refused, never wiped", (t) => {
  const dir = directory();
  const path = join(dir, "state.db");
  writeFileSync(path, "this is no database, but a foreign file\n".repeat(200));
  const before = readFileSync(path);
  t.throws(() => Database.openIn(dir), { code: "STATE_CORRUPT" });
  t.deepEqual(readFileSync(path), before);
});

test("a truncated database is refused", (t) => {
  const dir = directory();
  const path = join(dir, "state.db");
  Database.openIn(dir).close();
  truncateSync(path, Math.floor(statSync(path).size / 2 / 4096) * 4096);
  t.throws(() => Database.openIn(dir), { code: "STATE_CORRUPT" });
});

test("a foreign database is refused", (t) => {
  const dir = directory();
  const raw = new DatabaseSync(join(dir, "state.db"));
  raw.exec("CREATE TABLE diary (day TEXT)");
  raw.close();
  t.throws(() => Database.openIn(dir), { code: "STATE_CORRUPT" });
});

test("a state directory that cannot be is refused with a hint", (t) => {
  const dir = directory();
  writeFileSync(join(dir, "file"), "");
  const error = t.throws(() => lockState(join(dir, "file", "state")), { code: "STATE_UNWRITABLE" });
  t.true(isPodnetError(error) && error.hint !== undefined);
});

test("a store that cannot be written says so at every kind of write, and goes on when it can", (t) => {
  using db = Database.openIn(directory());
  db.get("PRAGMA query_only = ON");
  const write = (): void => setMeta(db, "boot_id", "b");
  t.throws(write, { code: "STATE_UNWRITABLE" });
  t.throws(() => db.transaction(write), { code: "STATE_UNWRITABLE" });
  db.get("PRAGMA query_only = OFF");
  db.transaction(write);
  t.is(getMeta(db, "boot_id"), "b");
});

const network = definition("default", ["10.0.0.1/24"]);

test("an address is held by one owner, then rests, then may change hands", (t) => {
  using db = Database.openIn(directory());
  putNetwork(db, network, readyRow);
  const ip = "10.0.0.2" as never;
  insertLease(db, network.name, ip, { kind: "pod", id: "a/0" }, 1);
  t.throws(() => insertLease(db, network.name, ip, { kind: "pod", id: "b/0" }, 2));
  freeLease(db, network.name, ip, 3);
  t.is(listLeases(db, network.name)[0]?.freedMs, 3);
  insertLease(db, network.name, ip, { kind: "pod", id: "b/0" }, 4);
  t.deepEqual(listLeases(db, network.name)[0]?.owner, { kind: "pod", id: "b/0" });
  freeLease(db, network.name, ip, 5);
  pruneLeases(db, 6);
  t.deepEqual(listLeases(db, network.name), []);
});

test("the users of pods are theirs whether these run or not", (t) => {
  using db = Database.openIn(directory());
  for (const [i, state] of ["running", "stopped", "failed", "creating"].entries()) {
    const plan = { podId: `p${i}`, name: `n${i}`, vm: { jail: { uid: 5000 + i } } };
    insertPod(db, plan as never, {} as never, 0);
    setPodState(db, plan.podId as never, { state: state as PodState }, 1);
  }
  insertPod(db, { podId: "open", name: "open", vm: {} } as never, {} as never, 0);
  t.deepEqual(uidsOfPods(db), new Set([5000, 5001, 5002, 5003]));
});

test("events are numbered without gap or reuse, and bounded", (t) => {
  using db = Database.openIn(directory());
  t.deepEqual(eventBounds(db), { oldest: 0, newest: 0 });
  const event = {
    timeMs: 1,
    kind: "updated",
    podId: "p" as never,
    podName: "n" as never,
    data: { text: "" },
  } as const;
  db.transaction(() => {
    for (let i = 0; i < eventLimit + 5; i++) insertEvent(db, event);
  });
  t.deepEqual(eventBounds(db), { oldest: 6, newest: eventLimit + 5 });
  t.deepEqual(
    eventsAfter(db, eventLimit, 3).map(({ cursor }) => cursor),
    [1, 2, 3].map((n) => eventLimit + n),
  );
  db.run("DELETE FROM events");
  t.is(insertEvent(db, event).cursor, eventLimit + 6);
});

test("requests are kept for a day and bounded in number", (t) => {
  using db = Database.openIn(directory());
  insertRequest(db, { id: "a", digest: "d", podId: "p" as never }, 1000);
  finishRequestsOf(db, "p" as never, undefined);
  t.true(getRequest(db, "a", 2000)?.done);
  t.is(getRequest(db, "a", 1001 + requestLimits.ageMs), undefined);
  insertRequest(db, { id: "a", digest: "e", podId: "q" as never }, 1001 + requestLimits.ageMs);
  t.is(getRequest(db, "a", 1001 + requestLimits.ageMs)?.digest, "e");
  db.run("DELETE FROM requests");
  db.transaction(() => {
    for (let i = 0; i < requestLimits.count + 10; i++) {
      insertRequest(db, { id: `r${i}`, digest: "d", podId: `p${i}` as never }, 2000 + i);
      db.run("UPDATE requests SET done = 1 WHERE id = ?", `r${i}`);
    }
  });
  t.true(Number(db.get("SELECT count(*) AS n FROM requests")?.["n"]) <= requestLimits.count + 1);
  t.is(getRequest(db, "r0", 3000), undefined);
});

const holder = (dir: string): string => `
  import { lockState } from ${JSON.stringify(join(import.meta.dirname, "../../../../daemon/store/lock.ts"))};
  // Held by a name: what has no reference is collected, and its lock with it.
  globalThis.lock = lockState(${JSON.stringify(dir)});
  console.log("locked");
  setInterval(() => {}, 1000);`;

test("a state directory has one daemon, and is free at once when that one is killed", async (t) => {
  const dir = directory();
  const first = spawn(process.execPath, ["--input-type=module", "-e", holder(dir)]);
  t.teardown(() => first.kill("SIGKILL"));
  await once(first.stdout, "data");
  const error = t.throws(() => lockState(dir), { code: "ALREADY_RUNNING" });
  t.true(isPodnetError(error) && error.hint !== undefined);
  first.kill("SIGKILL");
  await once(first, "exit");
  lockState(dir).release();
  t.pass();
});

test("a lock is given back when released", async (t) => {
  const dir = directory();
  lockState(dir).release();
  lockState(dir).release();
  const held = await lockNetns("hyper0");
  await t.throwsAsync(lockNetns("hyper0"), { code: "ALREADY_RUNNING" });
  held.release();
});

/** A directory that is there, with the settings of a podnetd that uses it. */
function places(of: string, sockets = of) {
  for (const name of ["run", "disks"]) mkdirSync(join(of, name), { recursive: true });
  return {
    runDir: join(of, "run"),
    disksDir: join(of, "disks"),
    socket: join(sockets, "api.sock"),
    cni: { enabled: true, socket: join(of, "run", "cni.sock"), pendingDir: join(of, "none") },
  } as Config;
}

test("a run directory, disks and sockets are one podnetd's, by whatever path another one names them", (t) => {
  const [one, other] = [directory(), directory()];
  const mine = places(one);
  const held = lockPlaces(mine);
  const others = places(other);
  const linked = join(other, "linked");
  symlinkSync(mine.runDir, linked);
  const refused: readonly (readonly [Partial<Config>, RegExp])[] = [
    [{ runDir: mine.runDir }, /run directory/],
    [{ runDir: linked }, /run directory/],
    [{ disksDir: mine.disksDir }, /directory of disks/],
    [{ socket: mine.socket }, /socket ".*api.sock"/],
  ];
  for (const [same, what] of refused) {
    const error = t.throws(() => lockPlaces({ ...others, ...same }), { code: "ALREADY_RUNNING" });
    t.regex(error?.message ?? "", what);
    t.true(isPodnetError(error) && /choose another --/.test(error.hint ?? ""));
  }
  lockPlaces(others).release();
  held.release();
  lockPlaces({ ...others, runDir: mine.runDir }).release();
});

test("control groups are made by one podnetd below a directory", (t) => {
  const cgroup = { version: 2, directory: directory() } as const;
  const held = lockCgroups(cgroup);
  t.throws(() => lockCgroups(cgroup), { code: "ALREADY_RUNNING", message: /control group/ });
  held.release();
  lockCgroups(cgroup).release();
});
