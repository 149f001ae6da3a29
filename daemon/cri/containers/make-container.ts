import { ipOf } from "../../../core/address.ts";
import type { LivePod } from "../../pods/lifecycle/live-pod.ts";
import type { Pods } from "../../pods/pods.ts";
import { staying } from "../../pods/store/pod-plan.ts";
import type { GuestMount } from "./guest-mounts.ts";
import { containersOf, guestMs } from "./machine-of.ts";
import type { ContainerRow } from "./rows.ts";

/** How long a guest may take to see its disk, milliseconds. */
const diskMs = 8000;

/** Makes a container in its machine: its image's disk, its files, and what is laid over them. */
export async function makeInMachine(
  pods: Pods,
  live: LivePod,
  { id, plan }: ContainerRow,
  image: { readonly file: string },
  mounts: readonly GuestMount[],
): Promise<void> {
  const containers = await containersOf(live);
  await plug(pods, live, plan.disk, image.file);
  const addresses = staying(live.plan.interfaces).flatMap((each) => each.addresses.map(ipOf));
  const request = { id, disk: plan.disk, addresses, waitMs: diskMs };
  await containers.create(request, AbortSignal.timeout(diskMs + guestMs));
  for (const mount of mounts) {
    const limit = AbortSignal.timeout(guestMs);
    await ("data" in mount
      ? containers.placeFile({ ...mount, id }, limit)
      : containers.share({ ...mount, id }, limit));
  }
}

/** Plugs in the disk of an image, unless it is. */
async function plug(pods: Pods, { plan }: LivePod, name: string, path: string): Promise<void> {
  const there = plan.disks?.find((disk) => disk.name === name);
  if (there !== undefined && there.change === undefined) return;
  const disk = { name, file: { path, format: "raw" as const }, readOnly: true };
  await pods.changes.addDisk(plan.podId, disk, false);
}

/** Takes a container out of its machine, and the disk of an image that no other one `needs`. */
export async function takeFromMachine(
  pods: Pods,
  live: LivePod,
  { id, podId, plan }: ContainerRow,
  isUsed: boolean,
): Promise<void> {
  const containers = await containersOf(live);
  await containers.remove(id, AbortSignal.timeout(guestMs));
  const isPlugged = live.plan.disks?.some(({ name }) => name === plan.disk) === true;
  if (!isUsed && isPlugged) await pods.changes.removeDisk(podId, plan.disk);
}
