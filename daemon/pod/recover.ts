import { readdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { PodnetError } from "../../core/errors.ts";
import { parsePodId, type PodId } from "../../core/names.ts";
import type { VmPlan } from "../../hypervisor/driver.ts";
import { planJail } from "../../hypervisor/jail/confinement.ts";
import { overlayDirectories } from "../../hypervisor/qemu/overlays.ts";
import type { PodRow } from "../store/pods.ts";
import { keepTrying } from "./keep-trying.ts";
import { reattachMs, takeDown, takeOver, type TakeOver } from "./take-over.ts";

/** Pods worked on at a time: each costs a few descriptors and, when it is to be taken down, a process's end. */
const together = 16;

export interface Recovery extends TakeOver {
  readonly podsDir: string;
  readonly netnsDir: string;
  readonly disksDir: string;
}

/** Of a pod whose recovery has failed so far. */
const notYet = "podnetd cannot take it over yet";
/** Of one that was taken down before, or half. */
const leftBehind = "podnetd cannot undo what is left of it yet";

const interrupted = (): PodnetError =>
  new PodnetError("CANCELLED", "podnetd ended while the pod was being created", {
    hint: "Create it again",
  });

/**
 * Makes host and rows agree after a start: what runs is taken over, what was half done is undone, and
 * directories without a row are removed. A pod of which that fails stays what it was, says so as its reason, and is tried
 * again until it works, while the others go on: called failed, its machine would run on with nobody to watch it.
 */
export async function recoverPods(recovery: Recovery): Promise<void> {
  const rows = recovery.records.list();
  const waiting = rows.values();
  const worker = async (): Promise<void> => {
    for (const row of waiting) await recoverOrRetry(row, recovery);
  };
  await Promise.all(Array.from({ length: together }, worker));
  const known = new Set<string>(rows.map(({ id }) => id));
  removeNamespaces(known, recovery);
  await removeStrangers(known, recovery);
  tellOfDisks(known, recovery);
}

/** What pods wrote whose records were lost is worth more than a machine: it goes when an administrator says so. */
function tellOfDisks(known: ReadonlySet<string>, { disksDir, log }: Recovery): void {
  for (const id of overlayDirectories(disksDir))
    if (!known.has(id))
      log.warn(
        { pod_id: id },
        "There is no record of the pod that wrote to disks; podnet down removes it",
      );
}

async function recoverOrRetry(row: PodRow, recovery: Recovery): Promise<void> {
  try {
    await recoverPod(row, recovery, reattachMs.first);
  } catch (thrown) {
    recovery.log.error({ pod_id: row.id, err: thrown }, "Cannot recover the pod, trying again");
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
      else recovery.records.forget(row.plan, interrupted(), true);
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
      // Nothing should be left of these; undoing what is absent costs little and makes it so.
      await takeDown(row, recovery);
      return;
  }
}

/** Those of pods that there are no rows of. */
function removeNamespaces(known: ReadonlySet<string>, { netnsDir, host, log }: Recovery): void {
  for (const name of namesIn(netnsDir)) {
    const podId = name.replace(/-.*/, "");
    if (known.has(podId)) continue;
    log.warn({ pod_id: podId }, "Removing a network namespace that has no record");
    try {
      host.sandboxes.remove(join(netnsDir, name));
    } catch (err) {
      log.error({ pod_id: podId, err }, "Cannot remove the namespace");
    }
  }
}

/** Between two attempts to remove one of those, milliseconds. */
const strangerAgainMs = 1000;

/** Machines of which there is no row: a crash before their row's commit cannot make any, a lost database can. */
async function removeStrangers(known: ReadonlySet<string>, recovery: Recovery): Promise<void> {
  for (const podId of podDirectories(recovery.podsDir)) {
    if (known.has(podId)) continue;
    recovery.log.warn({ pod_id: podId }, "Removing a machine that has no record");
    const { confinement } = recovery.host;
    const machine = { podId, vcpu: 1, memoryMib: 0 };
    const plan: VmPlan = {
      ...machine,
      cmdline: "",
      disks: [],
      runDir: join(recovery.podsDir, podId),
      // Which user it was is of no matter to its end.
      ...(confinement === undefined ? {} : { jail: planJail(confinement, machine, 0) }),
    };
    const remove = (): Promise<void> => recovery.host.driver.reap(undefined, plan);
    await remove().catch((thrown: unknown) => {
      recovery.log.error({ pod_id: podId, err: thrown }, "Cannot remove it, trying again");
      void removeLater(podId, remove, recovery);
    });
  }
}

/** There is no row that could say what is wrong: the log does, until it works or the daemon ends. */
async function removeLater(
  podId: PodId,
  remove: () => Promise<void>,
  { log, over }: Recovery,
): Promise<void> {
  for (;;) {
    await delay(strangerAgainMs, undefined, { signal: over, ref: false }).catch(() => {});
    if (over.aborted) return;
    try {
      await remove();
      log.info({ pod_id: podId }, "The machine that had no record is removed");
      return;
    } catch (thrown) {
      log.warn({ pod_id: podId, err: thrown }, "Cannot remove it yet");
    }
  }
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

function podDirectories(podsDir: string): PodId[] {
  return namesIn(podsDir).flatMap((name) => {
    try {
      return [parsePodId(name)];
    } catch {
      return [];
    }
  });
}
