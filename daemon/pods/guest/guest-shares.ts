import { PodnetError } from "../../../core/errors.ts";
import type { SharePlan } from "../../../hypervisor/driver.ts";
import { type LivePod, requireGuest } from "../lifecycle/live-pod.ts";
import type { Supervision } from "../lifecycle/supervision.ts";

/**
 * Has the agent mount the pod's shares that are served; answers where. Can be repeated: one that is
 * mounted stays.
 */
export async function mountShares(live: LivePod, signal: AbortSignal): Promise<string> {
  const served = sharesOf(live, (tag, ended) => !ended.includes(tag));
  for (const { tag, at, writable } of served)
    await requireGuest(live).mountShare(
      { tag, path: at, ...(writable ? { writable } : {}) },
      signal,
    );
  return served.map(({ at }) => at).join(" ");
}

/**
 * Makes a pod degraded whose shares nothing serves any more. A guest that uses one waits for ever:
 * QEMU 7.2 takes no new server for it.
 */
export function reportEndedShares(
  live: LivePod,
  { records, log }: Pick<Supervision, "records" | "log">,
): void {
  for (const { path, at } of sharesOf(live, (tag, ended) => ended.includes(tag))) {
    const error = new PodnetError("SHARE_UNUSABLE", "virtiofsd has ended, which served it", {
      hint: `Stop and start the pod: podnet stop ${live.plan.name}`,
      details: { path },
    });
    log.warn(
      { pod_id: live.plan.podId, err: error },
      `The share at "${at}" is not served any more`,
    );
    records.degraded(live.plan, `share ${at} is lost`, error);
  }
}

function sharesOf(
  { plan, vm }: LivePod,
  which: (tag: string, ended: readonly string[]) => boolean,
): readonly SharePlan[] {
  const ended = vm?.endedShares() ?? [];
  return (plan.vm.shares ?? []).filter(({ tag }) => which(tag, ended));
}

/** A share in one line. */
export const shareLine = ({ path, at, writable }: SharePlan): string =>
  `${at}: ${path}, ${writable ? "writable" : "read-only"}`;
