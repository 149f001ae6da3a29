import { setTimeout as delay } from "node:timers/promises";
import type { PodRow } from "../store/pods.ts";
import type { Supervision } from "./supervision.ts";

/** Between attempts, milliseconds: doubled from the first to the longest. */
const pauses = { first: 250, longest: 15_000 } as const;

/** A machine that is paused is the one that ran: what is to be put right stays so. */
const isSameLife = (one: PodRow["state"], other: PodRow["state"]): boolean =>
  one === other || [one, other].every((state) => state === "running" || state === "paused");

/**
 * Does again what failed for a pod, until it works, the pod is in another state, or the daemon ends. Meanwhile the pod
 * keeps its state and says what is wrong as its reason. Each attempt has the pod to itself.
 */
export function keepTrying(
  { id, plan, state }: PodRow,
  what: string,
  thrown: unknown,
  trying: Supervision,
  attempt: (row: PodRow) => Promise<void>,
): void {
  const { records, locks, log, over } = trying;
  const tell = (why: unknown): void => {
    try {
      records.ailing(plan, what, why);
    } catch (thrown) {
      // Maybe there is no room to write anything: then this has to wait as well.
      log.warn({ pod_id: id, err: thrown }, `Not written down: ${what}`);
    }
  };
  const once = (): Promise<boolean> =>
    locks.run(id, async () => {
      const row = records.get(id);
      if (over.aborted || row === undefined || !isSameLife(row.state, state)) return true;
      try {
        await attempt(row);
      } catch (again) {
        if (!over.aborted) tell(again);
        return over.aborted;
      }
      log.info({ pod_id: id }, `no more: ${what}`);
      if (records.get(id)?.reason?.startsWith(what) === true)
        records.well(plan, `no more: ${what}`);
      return true;
    });
  const run = async (): Promise<void> => {
    tell(thrown);
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
