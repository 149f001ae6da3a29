import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { OverlayMemory } from "../../../../daemon/overlays/records/overlay-memory.ts";
import { Database } from "../../../../daemon/store/database.ts";
import { overlayRecord } from "../../../../daemon/overlays/store.ts";
import { until } from "../../../lab/until.ts";

function site() {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-memory-"));
  const db = Database.openIn(directory);
  const warnings: string[] = [];
  const log = { warn: (_fields: object, text: string) => void warnings.push(text) };
  return {
    db,
    warnings,
    memory: new OverlayMemory(db, "flannel", log),
    /** As on a disk without room. */
    refuseWrites: (on: boolean) => db.run(`PRAGMA query_only = ${on ? 1 : 0}`),
    [Symbol.dispose]: () => {
      db.close();
      rmSync(directory, { recursive: true });
    },
  };
}

test("what is remembered is written down, and is not so where it cannot be", (t) => {
  using here = site();
  here.memory.remember({ left: true });
  t.like(overlayRecord(here.db, "flannel"), { left: true });
  here.refuseWrites(true);
  t.throws(() => here.memory.remember({ left: false }), { code: "STATE_UNWRITABLE" } as never);
  t.true(here.memory.record.left);
});

test("what is noted is so, is warned of once, and is written when that can be done again", async (t) => {
  using here = site();
  using memory = here.memory;
  here.refuseWrites(true);
  memory.note({ heardMs: 1 });
  memory.note({ heardMs: 2 });
  t.is(memory.record.heardMs, 2);
  t.deepEqual(here.warnings, ["Failed to record an overlay's state; retrying"]);
  t.deepEqual(overlayRecord(here.db, "flannel"), {});
  here.refuseWrites(false);
  await until("it is written", () => overlayRecord(here.db, "flannel").heardMs === 2);
});

test("what could not be written is tried once more at the end", (t) => {
  using here = site();
  {
    using memory = here.memory;
    here.refuseWrites(true);
    memory.note({ heardMs: 1 });
    here.refuseWrites(false);
  }
  t.is(overlayRecord(here.db, "flannel").heardMs, 1);
});
