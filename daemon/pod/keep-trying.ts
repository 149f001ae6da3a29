import { setTimeout as delay } from "node:timers/promises";
import type { PodRow } from "../store/pods.ts";
import type { Supervision } from "./supervision.ts";

/** Between attempts, milliseconds: doubled from the first to the longest. */
const pauses = { first: 250, longest: 15_000 } as const;

export interface Trying extends Supervision {
  /** Aborted when the daemon lets go of its pods. */
  readonly over: AbortSignal;
}

/**
 * Does again what failed for a pod, until it works, the pod is in another state, or the daemon ends. Meanwhile the pod
 * keeps its state and says what is wrong as its reason. Each attempt has the pod to itself.
 */
export function keepTrying(
  { id, plan, state }: PodRow,
  what: string,
  thrown: unknown,
  trying: Trying,
  attempt: (row: PodRow) => Promise<void>,
): void {
  const { records, locks, log, over } = trying;
  const once = (): Promise<boolean> =>
    locks.run(id, async () => {
      const row = records.get(id);
      if (over.aborted || row?.state !== state) return true;
      try {
        await attempt(row);
      } catch (again) {
        if (!over.aborted) records.ailing(plan, what, again);
        return over.aborted;
      }
      log.info({ pod_id: id }, `No more: ${what}`);
      if (records.get(id)?.reason?.startsWith(what) === true)
        records.well(plan, "taken over after all");
      return true;
    });
  const run = async (): Promise<void> => {
    records.ailing(plan, what, thrown);
    for (let pauseMs: number = pauses.first; ; ) {
      await delay(pauseMs, undefined, { signal: over, ref: false }).catch(() => {});
      if (await once()) return;
      pauseMs = Math.min(2 * pauseMs, pauses.longest);
    }
  };
  run().catch((failed: unknown) => {
    log.error({ pod_id: id, err: failed }, "Cannot try again");
  });
}
