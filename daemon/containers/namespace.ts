import { statfsSync } from "node:fs";
import type { AttachmentFragment } from "../../network/containers/desired.ts";
import type { AttachmentNetwork } from "./attachment-network.ts";

/** NSFS_MAGIC of linux/magic.h: what a namespace's path lies on, while it is bound there. */
const nsfs = 0x6e736673;

/**
 * Whether a path still leads to a namespace, as far as podnetd may see: its file stays, empty, when it was unmounted alone.
 * One that podnetd may not look at (`/proc/PID/ns/net` of a process that it may not trace) is not taken to be gone.
 */
function isNamespace(path: string): boolean {
  try {
    return statfsSync(path).type === nsfs;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === "EACCES" || code === "EPERM";
  }
}

/** Why an attachment's namespace is not there any more; undefined where it is, or where that cannot be told. */
export function whyLost(
  { netns, namespace }: Pick<AttachmentFragment, "netns" | "namespace">,
  network: Pick<AttachmentNetwork, "identify">,
): string | undefined {
  if (!isNamespace(netns)) return "its namespace is gone";
  if (namespace === undefined) return undefined;
  const there = identified(netns, network);
  return there === undefined || there === namespace
    ? undefined
    : "its namespace is gone, and another one at its path";
}

/** Which namespace a path leads to now; undefined where that cannot be told. */
export function identified(
  netns: string,
  network: Pick<AttachmentNetwork, "identify">,
): string | undefined {
  try {
    return network.identify(netns);
  } catch {
    // Whoever is to work in it is told why.
    return undefined;
  }
}
