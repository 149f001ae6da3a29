import type { Clock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import type { NetworkName, PodId } from "../../core/names.ts";
import type { Driver } from "../../hypervisor/driver.ts";
import { Addresses } from "../ipam/addresses.ts";
import { insertClaims } from "../pods/store/claims.ts";
import type { KeptPlan } from "../pods/store/kept-plans.ts";
import type { Unknown } from "../pods/lifecycle/orphans.ts";
import type { PodPlan } from "../pods/store/pod-plan.ts";
import type { Database } from "../store/database.ts";
import { type Row, integer, text } from "../store/rows.ts";
import { getNetwork, putNetwork } from "../networks/store.ts";
import { deletePod, insertPod, setPodState } from "../pods/store/pods.ts";
import { putRun } from "../pods/store/runs.ts";

/** A machine that runs, with what was kept of its pod. */
export type Keeping = Unknown & { readonly pid: number; readonly kept: KeptPlan };

export interface AdoptParts {
  readonly db: Database;
  readonly driver: Pick<Driver, "recordOf">;
  readonly clock: Clock;
  readonly quarantineMs: number;
  /** Name of the configuration's own network. */
  readonly configured: NetworkName;
  /** Pods whose machines run: they keep what they have. */
  readonly running: ReadonlySet<string>;
}

/**
 * Puts the pod of a machine that runs into the state as it was kept, as running; what the state
 * says about it otherwise goes. Pods without a machine that have its name, addresses, MACs or ports
 * are of an older state, and are deleted: theirs were given on. Answers their names. Throws when
 * another that runs has them, or the machine is not found.
 */
export function adoptPod({ podId, kept }: Keeping, parts: AdoptParts): string[] {
  const { db, driver, clock, quarantineMs, running, configured } = parts;
  const { plan, spec } = kept;
  const record = driver.recordOf(plan.vm);
  if (record === undefined)
    throw new PodnetError("QEMU_EXITED", "Its VM does not exist any more", {
      hint: "Look again: podnetd state",
    });
  const now = clock.now();
  const stale: string[] = [];
  db.transaction(() => {
    const created = db.get("SELECT created_ms FROM pods WHERE id = ?", podId);
    dropPod(db, podId);
    for (const { id, name } of inTheWay(db, plan)) {
      if (running.has(id)) throw taken(name);
      dropPod(db, id);
      stale.push(name);
    }
    for (const definition of kept.networks)
      if (getNetwork(db, definition.name) === undefined)
        putNetwork(db, definition, {
          state: "ready",
          configured: definition.name === configured,
          createdMs: now,
        });
    insertPod(db, plan, spec, created === undefined ? now : integer(created, "created_ms"));
    setPodState(db, podId, { state: "running" }, now);
    insertClaims({ db, addresses: new Addresses(db, [], quarantineMs, clock) }, plan);
    putRun(db, podId, record, now);
  }, "adopt");
  return stale;
}

const taken = (name: string): PodnetError =>
  new PodnetError(
    "NAME_IN_USE",
    `Pod "${name}" runs and has its name, an address, a MAC or a port`,
    {
      hint: "End one of both machines: podnetd state remove",
    },
  );

function dropPod(db: Database, id: PodId): void {
  deletePod(db, id);
  db.run("DELETE FROM leases WHERE owner_kind = 'pod' AND owner_id LIKE ? || '/%'", id);
}

interface Holder {
  readonly id: PodId;
  readonly name: string;
}

/** Pods that have what can be one pod's only. Throws for what a container has. */
function inTheWay(db: Database, plan: PodPlan): Holder[] {
  const found = new Map<PodId, Holder>();
  const note = (rows: readonly Row[]): void => {
    for (const row of rows) {
      const id = text<PodId>(row, "id");
      found.set(id, { id, name: text(row, "name") });
    }
  };
  note(db.all("SELECT id, name FROM pods WHERE name = ?", plan.name));
  for (const { network, addresses, nic } of plan.interfaces) {
    for (const address of network === undefined ? [] : addresses)
      note(
        db.all(
          `SELECT pods.id, pods.name FROM leases JOIN pods ON owner_id LIKE pods.id || '/%'
           WHERE owner_kind = 'pod' AND freed_ms IS NULL AND network = ? AND address = ?`,
          network ?? "",
          address.replace(/\/.*/, ""),
        ),
      );
    note(
      db.all(
        "SELECT pods.id, pods.name FROM interfaces JOIN pods ON pods.id = pod_id WHERE tap = ? OR mac = ?",
        nic?.tap ?? "",
        nic?.mac ?? "",
      ),
    );
  }
  for (const { protocol, hostPort } of plan.published ?? [])
    note(
      db.all(
        "SELECT pods.id, pods.name FROM ports JOIN pods ON pods.id = pod_id WHERE protocol = ? AND host_port = ?",
        protocol,
        hostPort,
      ),
    );
  return [...found.values()];
}
