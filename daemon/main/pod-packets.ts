import type { PodId } from "../../core/names.ts";
import type { CountedLink } from "../../linux/rtnetlink/counters.ts";
import type { PodPackets } from "../pods/lifetime/activity.ts";
import type { LivePod } from "../pods/lifecycle/live-pod.ts";
import { tapsOf } from "../traffic/counters.ts";

/**
 * Packets of pods by the counters of their taps: what the host receives, the pod has sent. A pod of
 * which a tap was not found is left out.
 */
export function packetsOf(
  pods: readonly LivePod[],
  links: ReadonlyMap<string, CountedLink>,
): ReadonlyMap<PodId, PodPackets> {
  const found = new Map<PodId, PodPackets>();
  for (const { plan } of pods) {
    const counted = tapsOf(plan.interfaces).map(({ tap }) => links.get(tap)?.counters);
    const packets = counted.reduce<PodPackets | undefined>(
      (sum, each) =>
        sum &&
        each && {
          sent: sum.sent + Number(each.rxPackets),
          received: sum.received + Number(each.txPackets),
        },
      { sent: 0, received: 0 },
    );
    if (packets !== undefined) found.set(plan.podId, packets);
  }
  return found;
}
