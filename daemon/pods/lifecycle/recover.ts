import { readdirSync } from "node:fs";
import { join } from "node:path";
import { limited } from "../../../core/aborting.ts";
import { PodnetError } from "../../../core/errors.ts";
import { overlayDirectories } from "../../../hypervisor/disks/copy-on-write.ts";
import { isDamaged } from "../store/pod-rows.ts";
import type { PodRow } from "../store/pod-row.ts";
import { keepTrying } from "./keep-trying.ts";
import type { KeptPlans } from "../store/kept-plans.ts";
import { unmark } from "../pool/markers.ts";
import { isOrphan, planToReap, removeMarkers, unknownMachines } from "./orphans.ts";
import {
  type Adopted,
  ensurePorts,
  reattachMs,
  takeDown,
  takeOver,
  type TakeOver,
} from "./take-over.ts";
import { afterEnd } from "../process/after-end.ts";
import { endText, failureOf } from "../process/process-end.ts";
import { everyPort } from "../interfaces/pod-ports.ts";
import { machineKindOf } from "../machine/machine-of.ts";
import { withCni, withNic } from "../store/pod-plan.ts";
import type { LinksOwner } from "../../../network/model/observed.ts";
import { podIfb } from "../../../network/model/ownership.ts";

/**
 * Pods recovered at a time: each costs a few descriptors and, when it is taken down, a process's
 * end.
 */
const together = 16;
/** Longest that one look at the ports of all pods may take, milliseconds. */
const portsMs = 10_000;

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
 * failed pod its machine would run on unwatched. Returns the pods that there are then.
 */
export async function recoverPods(recovery: Recovery): Promise<readonly PodRow[]> {
  const { records } = recovery;
  const rows = records.listAny();
  for (const { id, damage } of rows.filter(isDamaged))
    recovery.log.error(
      { pod_id: id, err: damage },
      "The pod's record is damaged; podnetd leaves the pod as it is",
    );
  const sound = rows.filter((row): row is PodRow => !isDamaged(row));
  const gone = await withoutRemains(sound, recovery);
  const adopted: Adopted[] = [];
  await eachOf(
    sound.filter((row) => !gone.has(row)),
    (row) => recoverOrRetry(row, { ...recovery, adopted: (each) => void adopted.push(each) }),
  );
  await repairPorts(adopted, recovery);
  const known = recovery.records.ids();
  removeNamespaces(known, recovery);
  await removeLeft(known, recovery);
  logUnknownDisks(known, recovery);
  for (const row of sound)
    if ((row.state === "stopped" || row.state === "failed") && row.plan.process !== undefined)
      restartAgain(row, recovery);
  return sound.flatMap((row) => (gone.has(row) ? row : (records.getUsable(row.id) ?? [])));
}

/** Works on all of them, some at a time. */
async function eachOf<T>(all: readonly T[], work: (each: T) => Promise<void>): Promise<void> {
  const waiting = all.values();
  const worker = async (): Promise<void> => {
    for (const each of waiting) await work(each);
  };
  await Promise.all(Array.from({ length: together }, worker));
}

/**
 * The stopped and failed pods of which nothing is left on the host, by one look at each kind of
 * what may be: recorded runs, processes, directories, control groups, links. Most pods of a host
 * with many are such, and to undo what is absent takes more than a millisecond for each. Their
 * rules are the sweep's, and the host forgets their neighbour entries here. Pods that may have
 * links of CNI plugins, or NICs in a foreign machine, are not among them.
 */
async function withoutRemains(
  rows: readonly PodRow[],
  recovery: Recovery,
): Promise<ReadonlySet<PodRow>> {
  const { records, host, log } = recovery;
  const withRun = records.withRun();
  const over = rows.filter(
    ({ id, state, plan }) =>
      (state === "stopped" || state === "failed") &&
      !withRun.has(id) &&
      machineKindOf(plan.vm).isOwn &&
      withCni(plan.interfaces).length === 0,
  );
  if (over.length === 0) return new Set();
  try {
    const machines = host.driver.withRemains(over.map(({ plan }) => plan.vm));
    const links = await host.network.observe.withLinks(over.map(linksOf));
    const gone = over.filter(({ id }) => !machines.has(id) && !links.has(id));
    const ports = gone.flatMap(({ plan }) => everyPort(plan).ports);
    const limit = limited(portsMs, recovery.over);
    if (ports.length > 0) await host.network.remove({ kind: "neighbours", of: ports }, limit);
    return new Set(gone);
  } catch (err) {
    log.warn({ err }, "Failed to look for what stopped pods have left; looking for each pod's");
    return new Set();
  }
}

/** A limit of what the guest sends has a link of its own, which outlives the tap. */
const linksOf = ({ id, plan }: PodRow): LinksOwner => ({
  kind: "pod",
  key: id,
  names: withNic(plan.interfaces).flatMap(({ position, nic }) => [nic.tap, podIfb(id, position)]),
});

/**
 * Repairs the ports of adopted machines: those that a look at all at once finds to be otherwise
 * than planned.
 */
async function repairPorts(adopted: readonly Adopted[], recovery: Recovery): Promise<void> {
  if (adopted.length === 0) return;
  const { host, log } = recovery;
  let others = adopted;
  try {
    const fragments = adopted.map(({ ports }) => ports);
    const found = await host.network.observe.deviating(fragments, limited(portsMs, recovery.over));
    others = adopted.filter(({ ports }) => found.has(ports));
  } catch (err) {
    log.warn({ err }, "Failed to compare the ports of all pods at once; comparing each pod's");
  }
  await eachOf(others, (each) => ensurePorts(each, recovery));
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
    const { adopted: _together, ...rest } = recovery;
    const later: Recovery = { ...rest, sweeping: false };
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
      if (row.established) {
        recovery.records.state(row.plan, "failed", { error: interrupted() });
        restartAgain(row, recovery);
      } else recovery.records.forget(row.plan, interrupted(), { interrupted: true });
      return;
    case "deleting":
      await takeDown(row, recovery);
      recovery.records.forget(row.plan);
      return;
    case "stopping":
      await takeDown(row, recovery);
      endStopping(row, recovery);
      return;
    case "stopped":
    case "failed":
      // Nothing should be left of these pods; undoing what is absent costs little and makes sure.
      await takeDown(row, recovery);
      return;
  }
}

/** A pod that was stopping ends as its main process did, if that was why; and says why. */
function endStopping(row: PodRow, recovery: Recovery): void {
  const { records } = recovery;
  const end = records.processes.get(row.id)?.end;
  const byItself = end !== undefined && row.reason === endText(end);
  const error = byItself ? failureOf(end) : undefined;
  const { reason } = row;
  if (error === undefined)
    records.state(row.plan, "stopped", reason === undefined ? {} : { reason });
  else records.state(row.plan, "failed", { error });
  if (byItself) afterEnd(row, recovery);
  else records.processes.gone(row.plan);
}

/** Starts that the restart policy had decided on, and those that a podnetd before had begun. */
function restartAgain(row: PodRow, recovery: Recovery): void {
  const process = recovery.records.processes.get(row.id);
  if (process?.nextMs !== undefined)
    recovery.restartLater(row.id, Math.max(0, process.nextMs - recovery.host.clock.now()));
  else if (process?.endedMs === undefined) afterEnd(row, recovery);
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
