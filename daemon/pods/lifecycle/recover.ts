import { readdirSync } from "node:fs";
import { join } from "node:path";
import { PodnetError } from "../../../core/errors.ts";
import { overlayDirectories } from "../../../hypervisor/disks/copy-on-write.ts";
import { isDamaged } from "../store/pod-rows.ts";
import type { PodRow } from "../store/pod-row.ts";
import { keepTrying } from "./keep-trying.ts";
import type { KeptPlans } from "../store/kept-plans.ts";
import { unmark } from "../pool/markers.ts";
import { isOrphan, planToReap, removeMarkers, unknownMachines } from "./orphans.ts";
import { reattachMs, takeDown, takeOver, type TakeOver } from "./take-over.ts";

/**
 * Pods recovered at a time: each costs a few descriptors and, when it is taken down, a process's
 * end.
 */
const together = 16;

export interface Recovery extends TakeOver {
  readonly podsDir: string;
  readonly netnsDir: string;
  readonly disksDir: string;
  readonly kept: KeptPlans;
}

/** The reason of a pod whose recovery has failed so far. */
const notYet = "podnetd cannot take it over yet";
/** The reason of a pod that could not be taken down so far. */
const leftBehind = "podnetd cannot undo what is left of it yet";

const interrupted = (): PodnetError =>
  new PodnetError("CANCELLED", "podnetd ended while the pod was being created", {
    hint: "Create it again",
  });

/**
 * Makes host and rows agree after a start: running machines are adopted, half-done work is undone,
 * and directories without a row and a machine are removed. A pod whose recovery fails keeps its
 * state, has the failure as its reason, and is retried until it works, while the others go on: as a
 * failed pod its machine would run on unwatched.
 */
export async function recoverPods(recovery: Recovery): Promise<void> {
  const rows = recovery.records.listAny();
  for (const { id, damage } of rows.filter(isDamaged))
    recovery.log.error(
      { pod_id: id, err: damage },
      "The pod's record is damaged; podnetd leaves the pod as it is",
    );
  const waiting = rows.filter((row): row is PodRow => !isDamaged(row)).values();
  const worker = async (): Promise<void> => {
    for (const row of waiting) await recoverOrRetry(row, recovery);
  };
  await Promise.all(Array.from({ length: together }, worker));
  const known = recovery.records.ids();
  removeNamespaces(known, recovery);
  await removeLeft(known, recovery);
  logUnknownDisks(known, recovery);
}

/**
 * Reports disks without a row. What a pod wrote is worth more than a machine, so only an
 * administrator removes it.
 */
function logUnknownDisks(known: ReadonlySet<string>, { disksDir, log }: Recovery): void {
  for (const id of overlayDirectories(disksDir))
    if (!known.has(id))
      log.warn({ pod_id: id }, "Found disks of a pod without a record; podnet down removes them");
}

async function recoverOrRetry(row: PodRow, recovery: Recovery): Promise<void> {
  try {
    await recoverPod(row, recovery, reattachMs.first);
  } catch (thrown) {
    recovery.log.error({ pod_id: row.id, err: thrown }, "Failed to recover the pod; retrying");
    const what = row.state === "running" || row.state === "paused" ? notYet : leftBehind;
    const later: Recovery = { ...recovery, sweeping: false };
    keepTrying(row, what, thrown, recovery, (now) => recoverPod(now, later, reattachMs.again));
  }
}

async function recoverPod(row: PodRow, recovery: Recovery, limitMs: number): Promise<void> {
  switch (row.state) {
    case "running":
    case "paused":
      return takeOver(row, recovery, limitMs);
    case "creating":
      await takeDown(row, recovery);
      if (row.established) recovery.records.state(row.plan, "failed", { error: interrupted() });
      else recovery.records.forget(row.plan, interrupted(), { interrupted: true });
      return;
    case "deleting":
      await takeDown(row, recovery);
      recovery.records.forget(row.plan);
      return;
    case "stopping":
      await takeDown(row, recovery);
      recovery.records.state(row.plan, "stopped");
      return;
    case "stopped":
    case "failed":
      // Nothing should be left of these pods; undoing what is absent costs little and makes sure.
      await takeDown(row, recovery);
      return;
  }
}

/** Removes namespaces of pods without a row. */
function removeNamespaces(known: ReadonlySet<string>, { netnsDir, host, log }: Recovery): void {
  for (const name of namesIn(netnsDir)) {
    const podId = name.replace(/-.*/, "");
    if (known.has(podId)) continue;
    log.warn({ pod_id: podId }, "Removing a network namespace without a record");
    try {
      host.sandboxes.remove(join(netnsDir, name));
    } catch (err) {
      log.error({ pod_id: podId, err }, "Failed to remove the namespace");
    }
  }
}

/**
 * Removes what machines without a row have left: those that have ended, templates, and those that a
 * delete by force left behind. Another machine that runs is evidence of a lost row, and stays;
 * `refuseOrphans` has looked before.
 */
async function removeLeft(known: ReadonlySet<string>, recovery: Recovery): Promise<void> {
  const { log, host, kept, retries } = recovery;
  for (const found of unknownMachines(known, { ...recovery, driver: host.driver })) {
    const { podId, pid } = found;
    if (isOrphan(found)) {
      log.error({ pod_id: podId, pid }, "A running VM has no record; podnetd leaves it alone");
      continue;
    }
    log.warn({ pod_id: podId }, "Removing leftovers of a VM without a record");
    const plan = planToReap(found, host.confinement);
    const remove = async (): Promise<void> => {
      await host.driver.reap(undefined, plan);
      unmark(plan);
    };
    await remove().catch((thrown: unknown) => {
      // There is no row to carry the reason.
      log.error({ pod_id: podId, err: thrown }, "Failed to remove leftovers of a VM; retrying");
      retries.failed(
        `remains ${podId}`,
        async () => {
          await remove();
          log.info({ pod_id: podId }, "Removed leftovers of a VM without a record");
        },
        thrown,
      );
    });
  }
  removeMarkers(recovery.podsDir, known);
  kept.removeOthers(new Set([...known, ...namesIn(recovery.podsDir)]));
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
