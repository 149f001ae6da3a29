import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import { changeStop } from "../interfaces/live-interfaces.ts";
import { keepTrying } from "../lifecycle/keep-trying.ts";
import type { LivePod } from "../lifecycle/live-pod.ts";
import type { Supervision } from "../lifecycle/supervision.ts";
import { changingDisks, type DataDiskPlan, withDisk, withoutDisk } from "../store/data-disks.ts";
import { makeFile, plugDisk, takeOut } from "./act-disks.ts";

/** Longest that unplugging a disk may take, milliseconds. */
const takeOutMs = 20_000;

/**
 * Plugs a planned disk into a running pod: first its row, then its file, then the machine. What
 * fails is undone. The caller has the pod's turn.
 */
export async function addDisk(
  live: LivePod,
  disk: DataDiskPlan,
  watch: Supervision,
): Promise<void> {
  const { name } = disk;
  const { records } = watch;
  records.learn(
    live,
    `disk ${name} is being added`,
    ({ plan }) => withDisk(plan, { ...disk, change: "adding" }),
    { need: "usual" },
  );
  using stop = changeStop(live);
  try {
    await makeFile(disk);
    await plugDisk(live, name, stop.signal);
    records.learn(live, `disk ${name} added`, ({ plan }) => withDisk(plan, disk));
  } catch (thrown) {
    const error = toPodnetError(thrown);
    await finishDisk(live, name, watch, `disk ${name} not added: ${error.message}`).catch(() => {});
    throw error;
  }
}

/**
 * Removes a disk of a pod, with its file if podnetd made it. A guest may keep the disk for a while:
 * then the removal is completed when it lets go, or with its machine. The caller has the pod's
 * turn.
 */
export async function removeDisk(
  live: LivePod,
  disk: DataDiskPlan,
  watch: Supervision,
): Promise<void> {
  const { name } = disk;
  watch.records.learn(live, `disk ${name} is being removed`, ({ plan }) =>
    withDisk(plan, { ...disk, change: "removing" }),
  );
  await finishDisk(live, name, watch, `disk ${name} removed`);
}

/** After a start: completes the changes of disks that the podnetd before had begun. */
export async function finishDisks(live: LivePod, watch: Supervision): Promise<void> {
  for (const { name } of changingDisks(live.plan))
    await finishDisk(live, name, watch, `disk ${name} removed: its change was cut short`).catch(
      () => {},
    );
}

/** Takes out a disk whose change is under way; retries what fails, and throws it. */
async function finishDisk(
  live: LivePod,
  name: string,
  watch: Supervision,
  text: string,
): Promise<void> {
  const { records, log } = watch;
  const { podId } = live.plan;
  const finish = async (): Promise<void> => {
    const disk = changingDisks(live.plan).find((each) => each.name === name);
    if (disk === undefined) return;
    const left = await takeOut(live, disk, AbortSignal.timeout(takeOutMs));
    if (left === "pending") {
      records.note(live.plan, `the guest has not let go of disk ${name} yet`);
      return;
    }
    records.learn(live, text, ({ plan }) => withoutDisk(plan, name));
    if (records.get(podId)?.reason?.startsWith(absence(name)) === true)
      records.recovered(live.plan, text);
  };
  try {
    await finish();
  } catch (thrown) {
    const row = records.get(podId);
    log.error({ pod_id: podId, err: thrown }, "Cannot remove a disk");
    if (row !== undefined)
      keepTrying(row, `disk ${name} is not removed yet`, thrown, watch, finish);
    throw toPodnetError(thrown).with({ hint: "podnetd goes on trying: see podnet disk list" });
  }
}

/**
 * A disk has left the machine: completes its removal, or makes the pod degraded where none was
 * asked for.
 */
export async function diskLeft(live: LivePod, name: string, watch: Supervision): Promise<void> {
  await watch.locks.run(live.plan.podId, async () => {
    const disk = live.plan.disks?.find((each) => each.name === name);
    if (disk === undefined || live.disks.has(name)) return;
    if (disk.change === undefined) reportAbsent(live, [name], watch);
    else await finishDisk(live, name, watch, `disk ${name} removed`);
  });
}

/** Makes a pod degraded whose machine does not have disks that it is to have. */
export function reportAbsent(
  { plan }: LivePod,
  names: readonly string[],
  { records, log }: Pick<Supervision, "records" | "log">,
): void {
  for (const name of names) {
    const gone = new PodnetError(
      "DISK_NOT_FOUND",
      "its guest or another program has taken it out",
      { hint: "Remove the disk and add it again, or restart the pod" },
    );
    log.warn({ pod_id: plan.podId }, `Disk ${name} is not in the machine any more`);
    records.degraded(plan, absence(name), gone);
  }
}

const absence = (name: string): string => `disk ${name} is not in its machine`;
