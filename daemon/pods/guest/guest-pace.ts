import { PodnetError } from "../../../core/errors.ts";
import type { Guest } from "../../../guest-init/channel/guest.ts";
import type { LivePod } from "../lifecycle/live-pod.ts";
import { guard, type Supervision } from "../lifecycle/supervision.ts";

/** The beginning of the pod's reason meanwhile. */
const slowed = "the guest is slowed down";

/**
 * Shows as the pod's reason, in events, log and metrics that its guest sends more than podnetd
 * reads. Returns the unsubscriber.
 */
export function followPace(guest: Guest, live: LivePod, watch: Supervision): () => void {
  const over = (): void => {
    const isReason = watch.records.get(live.plan.podId)?.reason?.startsWith(slowed) === true;
    if (isReason) watch.records.recovered(live.plan, "the guest is not slowed down any more");
  };
  return guest.onSlowed((is) =>
    guard(live, watch, () => {
      if (!is) return over();
      watch.dropped?.("guest_slowed");
      const error = new PodnetError(
        "AGENT_PROTOCOL",
        "it sends more small frames on its tty channel than it may",
        { hint: "Its programs write byte by byte, or its agent is hostile: see what runs in it" },
      );
      watch.records.degraded(live.plan, slowed, error);
    }),
  );
}
