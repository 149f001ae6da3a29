import { keepTrying } from "./keep-trying.ts";
import type { PodPlan } from "../store/pod-plan.ts";
import type { Supervision } from "./supervision.ts";

/** See `Ending`. */
export function writeDown({ podId }: PodPlan, write: () => void, watch: Supervision): unknown {
  const { records, log } = watch;
  try {
    write();
    return undefined;
  } catch (thrown) {
    log.error({ pod_id: podId, err: thrown }, "Failed to record the pod's end; retrying");
    const row = records.getUsable(podId);
    const again = async (): Promise<void> => write();
    if (row !== undefined) keepTrying(row, "its end cannot be recorded", thrown, watch, again);
    return thrown;
  }
}
