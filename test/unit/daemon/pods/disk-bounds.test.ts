import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { create } from "@bufbuild/protobuf";
import { PodSpecSchema } from "../../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { validateSpec } from "../../../../api/validate/validate.ts";
import { watchEffects } from "../../../../core/effect.ts";
import { lockDisks } from "../../../../daemon/store/lock.ts";
import { systemClock } from "../../../../core/clock.ts";
import { Journal } from "../../../../daemon/events/journal.ts";
import { fullness } from "../../../../daemon/pods/lifecycle/disk-trouble.ts";
import { planDisks } from "../../../../daemon/pods/plan/plan-disks.ts";
import type { Snapshot } from "../../../../daemon/pods/plan/snapshot.ts";
import { Database } from "../../../../daemon/store/database.ts";
import { Reserve } from "../../../../daemon/store/reserve.ts";
import { fullQcow2Bytes } from "../../../../hypervisor/disks/qcow2-copy.ts";

const mib = 2 ** 20;
const directory = (): string => mkdtempSync(join(tmpdir(), "podnet-bounds-"));

/** The bound of the pod's own file for a disk of so many bytes. */
function boundOf(disk: object, diskMaxMib: number, bytes = 1024 * mib): number | undefined {
  const found = { kind: "disk", bytes, image: "i", mark: "m", writable: true, holders: [] };
  const snapshot = { podId: "a", disksDir: "/d", diskMaxMib, files: {}, disks: [found] };
  const wire = create(PodSpecSchema, { boot: { disks: [{ path: "/i", ...disk }] } });
  const spec = validateSpec(wire, { network: "default" as never });
  const [plan] = planDisks(spec, snapshot as unknown as Snapshot);
  return plan?.overlay?.maxBytes;
}

test("what a pod may write to a disk is what its spec says, else what the node says, and never more than the disk takes", (t) => {
  t.is(boundOf({}, 0), undefined);
  t.is(boundOf({}, 16), 16 * mib);
  t.is(boundOf({ maxMib: 4 }, 16), 4 * mib);
  t.is(boundOf({ maxMib: 32 }, 16), 32 * mib);
  t.is(boundOf({ maxMib: 1025 }, 16), undefined, "the whole disk fits");
  t.throws(() => boundOf({ maxMib: 1 }, 0, 2 ** 50), {
    code: "INVALID_ARGUMENT",
    message: /does not fit into 1 MiB/,
  });
  t.throws(() => boundOf({ maxMib: 0 }, 0), { code: "INVALID_ARGUMENT" });
  for (const other of [{ readOnly: true }, { writeThrough: true }])
    t.throws(() => boundOf({ maxMib: 4, ...other }, 0), { code: "INVALID_ARGUMENT" });
});

test("a disk written to from end to end takes its data, its tables and its counts", (t) => {
  // 16 clusters of data, a second table, header, table of counts, a block of them and a first
  // table.
  t.true(fullQcow2Bytes(mib) >= (16 + 1 + 4) * 65_536);
  t.true(fullQcow2Bytes(1024 * mib) < 1025 * mib);
  t.true(fullQcow2Bytes(2 ** 40) > 2 ** 40 + 2 ** 40 / 8192);
});

test("a machine that QEMU stopped for want of room says which room", (t) => {
  const file = { maxBytes: 64 * mib, allocatedBytes: 10 * mib, freeBytes: 100 * mib };
  t.is(fullness(undefined, "/d"), undefined);
  t.is(fullness(file, "/d"), undefined);
  t.is(fullness({ ...file, freeBytes: mib }, "/d"), "make room in /d and resume the pod");
  t.is(
    fullness({ ...file, allocatedBytes: 63 * mib }, "/d"),
    "its pod has written the 64 MiB that it may",
  );
});

test("a disks directory has one daemon", (t) => {
  const dir = directory();
  using lock = lockDisks(dir);
  t.throws(() => lockDisks(dir), {
    code: "ALREADY_RUNNING",
    message: new RegExp(`uses the disks directory "${dir}"`),
  });
  lock.release();
  lockDisks(dir).release();
});

test("a reserve takes room and inodes, is found again, and a small filesystem gives up a sixteenth at the most", (t) => {
  const dir = directory();
  t.true(Reserve.open(dir).whole);
  const files = readdirSync(join(dir, "reserve"));
  t.is(files.length, 16);
  const sizes = files.map((name) => statSync(join(dir, "reserve", name)).blocks * 512);
  t.true(sizes.reduce((sum, size) => sum + size, 0) <= 8 * mib);
  t.true(sizes.every((size) => size >= 4096));

  const again = Reserve.open(dir);
  t.true(again.whole);
  t.true(again.release());
  t.false(again.whole);
  t.deepEqual(readdirSync(dir), []);
  t.false(again.release(), "there is nothing left to give");
  t.true(again.make());
  rmSync(join(dir, "reserve", "3"));
  t.true(Reserve.open(dir).whole, "one that lacks a piece is made anew");
  t.is(readdirSync(join(dir, "reserve")).length, 16);
});

test.serial(
  "what is essential is committed with the reserve's room, once, and nothing new before it is whole again",
  async (t) => {
    const dir = directory();
    using db = Database.openIn(dir);
    const reserve = Reserve.open(dir);
    db.useReserve(reserve);
    const journal = new Journal(db, systemClock);
    const event = { kind: "updated", podId: "p", podName: "n", data: { text: "there" } } as never;
    const commit = (need: "new" | "usual" | "essential"): void => journal.emit(event, { need });
    let room = false;
    t.teardown(() => watchEffects(undefined));
    watchEffects({
      at({ boundary, what }, side) {
        // SQLITE_FULL, until the reserve is given back.
        if (boundary === "file" && what === "release reserve") room = true;
        if (boundary === "commit" && side === "before" && !room)
          throw Object.assign(new Error("database or disk is full"), { errcode: 13 });
        if (boundary === "file" && what === "make reserve" && side === "before" && room)
          throw Object.assign(new Error("no space"), { code: "ENOSPC" });
      },
      async atAsync() {},
    });
    t.throws(() => commit("usual"), { code: "STATE_UNWRITABLE" });
    t.throws(() => commit("new"), { code: "STATE_UNWRITABLE" });
    t.true(reserve.whole);
    const before = journal.newest;
    const stop = new AbortController();
    const reported = Array.fromAsync(journal.watch(before, stop.signal), ({ cursor }) => cursor);
    commit("essential");
    await new Promise(setImmediate);
    stop.abort();
    t.deepEqual(await reported, [before + 1], "its event is reported once");
    t.false(reserve.whole);
    commit("usual");
    t.throws(() => commit("new"), { code: "STATE_UNWRITABLE", message: /nearly full/ });
    watchEffects(undefined);
    commit("new");
    t.true(reserve.whole);
  },
);
