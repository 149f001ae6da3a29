import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { systemClock } from "../../../../core/clock.ts";
import { PeerMemory } from "../../../../daemon/overlays/records/peer-memory.ts";
import { recalledText } from "../../../../daemon/overlays/trouble-text.ts";
import { Database } from "../../../../daemon/store/database.ts";
import type { Log } from "../../../../linux/log.ts";
import type { OverlayBackend, OverlayDesired } from "../../../../network/model/overlay.ts";
import { overlayOf, peerOf, vxlan } from "../../../lab/overlay.ts";
import { until } from "../../../lab/until.ts";

const desiredOf = (backend: OverlayBackend, peers: readonly number[]): OverlayDesired => {
  const desired = { ...overlayOf(1), backend };
  const found = peers.map((n) => peerOf(n));
  return { ...desired, sides: desired.sides.map((side) => ({ ...side, peers: found })) };
};

function site() {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-peers-"));
  const db = Database.openIn(directory);
  const log = { warn: () => {} } as unknown as Log;
  return {
    start: (bootId: string) =>
      new PeerMemory({ db, overlay: "flannel", bootId, clock: systemClock, log }),
    [Symbol.dispose]: () => {
      db.close();
      rmSync(directory, { recursive: true });
    },
  };
}

test("peers that podnetd itself sends to are recalled by each start, those of the kernel after a boot alone", (t) => {
  for (const backend of [vxlan, { kind: "udp", port: 8285 }] as const) {
    using here = site();
    const wanted = desiredOf(backend, [2, 3]);
    {
      using memory = here.start("first boot");
      t.is(memory.recall(wanted), undefined, "nothing is written yet");
      memory.note(wanted, () => wanted);
    }
    const empty = desiredOf(backend, []);
    const own = backend.kind === "udp";
    t.deepEqual(here.start("first boot").recall(empty), own ? wanted : undefined);
    t.like(here.start("first boot").former, { sameBoot: true });
    t.deepEqual(here.start("second boot").recall(empty), wanted);
    t.like(here.start("second boot").former, { sameBoot: false });
  }
});

test("peers that podnetd itself sends to are written within a second or so, for a kill leaves none in the kernel", async (t) => {
  using here = site();
  const wanted = desiredOf({ kind: "udp", port: 8285 }, [2]);
  using memory = here.start("boot");
  memory.note(wanted, () => wanted);
  await until("it to be written", () => here.start("boot").recall(wanted) !== undefined, 5000);
  t.deepEqual(here.start("boot").recall(wanted), wanted);
});

test("what is said of recalled hosts names since when etcd is silent, and that none are remembered", (t) => {
  const writtenMs = Date.UTC(2026, 10, 1);
  const at = "at 2026-11-01T00:00:00.000Z";
  t.deepEqual(recalledText("etcd", 2, { writtenMs, sameBoot: false }, false), [
    `etcd has not been heard since this host was booted: 2 other hosts are as they were ${at}`,
  ]);
  t.deepEqual(recalledText("etcd", 1, { writtenMs, sameBoot: true }, true), [
    `etcd has not been heard since podnetd started: 1 other host is as it was ${at}`,
  ]);
  t.deepEqual(recalledText("etcd", 0, undefined, true), [
    "etcd has not been heard since podnetd started, and no other host is remembered: packets to other hosts are dropped",
  ]);
  t.deepEqual(recalledText("etcd", 0, undefined, false), []);
});
