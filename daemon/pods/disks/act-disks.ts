import { PodnetError } from "../../../core/errors.ts";
import {
  makeEmptyDisk,
  makeOwnFiles,
  ownFilesOf,
  removeOwnFilesOf,
  removeOwnFiles,
} from "../../../hypervisor/disks/copy-on-write.ts";
import { openHotDisk } from "../../../hypervisor/disks/disks.ts";
import type { Host } from "../lifecycle/host.ts";
import type { LivePod } from "../lifecycle/live-pod.ts";
import { changingDisks, type DataDiskPlan, madeFiles, withoutDisk } from "../store/data-disks.ts";

/** Makes the files of the pod's own, empty; answers them, for people. */
export async function makeDisks({ plan }: LivePod): Promise<string> {
  await makeOwnFiles(plan.vm);
  for (const disk of plan.disks ?? []) await makeFile(disk);
  return [...ownFilesOf(plan.vm), ...madeFiles(plan.disks)].join(" ");
}

/** Makes a disk's file, if podnetd is to. */
export async function makeFile({ path, madeMib }: DataDiskPlan): Promise<void> {
  if (madeMib !== undefined) await makeEmptyDisk(path, madeMib * 2 ** 20);
}

/** Plugs a disk of the plan; answers its file, for people. */
export async function plugDisk(live: LivePod, name: string, signal: AbortSignal): Promise<string> {
  const disk = live.plan.disks?.find((each) => each.name === name);
  if (disk === undefined) throw new RangeError(`The plan has no disk ${name}`);
  if (live.vm === undefined) throw new PodnetError("INTERNAL", "The machine has not been started");
  using file = openHotDisk(disk);
  await live.vm.plugDisk(disk, file.fd, signal);
  live.disks.add(name);
  return `${disk.path} in slot ${disk.slot}`;
}

/**
 * Takes a disk out of the machine, and removes a file that podnetd made for it. `pending` when the
 * guest keeps the disk: then its file stays. Absent is success.
 */
export async function takeOut(
  live: LivePod,
  disk: DataDiskPlan,
  signal: AbortSignal,
): Promise<"gone" | "pending"> {
  // What happens to the disk from here on is intended.
  live.disks.delete(disk.name);
  if ((await live.vm?.unplugDisk(disk.name, signal)) === "pending") return "pending";
  await removeOwnFiles(madeFiles([disk]));
  return "gone";
}

/** Removes all files of the pod's own: it is being deleted, or has never run. */
export const dropDisks = async ({ plan }: LivePod): Promise<void> => {
  await removeOwnFilesOf(plan.vm);
  await removeOwnFiles(madeFiles(plan.disks));
};

/** Completes the changes of disks of a pod that has no machine any more. */
export async function dropChanging(live: LivePod, host: Host): Promise<void> {
  for (const disk of changingDisks(live.plan)) {
    await removeOwnFiles(madeFiles([disk]));
    host.learn(live, `disk ${disk.name} removed`, ({ plan }) => withoutDisk(plan, disk.name));
  }
}
