import { statfsSync } from "node:fs";
import type { AttachmentNetwork } from "./attachment-network.ts";
import type { AttachmentPlan } from "./attachment-plan.ts";

/** NSFS_MAGIC of linux/magic.h: the file system of a namespace's path while it is bound there. */
const nsfs = 0x6e736673;

/**
 * Whether a path still leads to a namespace, as far as podnetd may see. A namespace that was only
 * unmounted leaves an empty file. One that podnetd may not look at (`/proc/PID/ns/net` of a process
 * that it may not trace) counts as there.
 */
function isNamespace(path: string): boolean {
  try {
    return statfsSync(path).type === nsfs;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === "EACCES" || code === "EPERM";
  }
}

/**
 * Why an attachment's namespace is gone; undefined where it is there, or where podnetd cannot see.
 */
export function whyLost(
  { netns, namespace }: Pick<AttachmentPlan, "netns" | "namespace">,
  network: Pick<AttachmentNetwork, "identify">,
): string | undefined {
  if (!isNamespace(netns)) return "its namespace is gone";
  if (namespace === undefined) return undefined;
  const there = identified(netns, network);
  return there === undefined || there === namespace
    ? undefined
    : "its namespace is gone, and another one at its path";
}

/** The identity of the namespace that a path leads to now; undefined where it cannot be read. */
export function identified(
  netns: string,
  network: Pick<AttachmentNetwork, "identify">,
): string | undefined {
  try {
    return network.identify(netns);
  } catch {
    // The caller that is to work in the namespace gets the error.
    return undefined;
  }
}
