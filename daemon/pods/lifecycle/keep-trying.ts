import type { PodRow } from "../store/pod-row.ts";
import type { Supervision } from "./supervision.ts";

/** Between attempts after a failure of a pod. */
export const podBackoff = { firstMs: 250, longestMs: 15_000 } as const;

/** A paused machine is the one that ran, so a repair of it is still needed. */
const isSameLife = (one: PodRow["state"], other: PodRow["state"]): boolean =>
  one === other || [one, other].every((state) => state === "running" || state === "paused");

/**
 * Retries what failed for a pod, until it works, the pod is in another state, or podnetd ends.
 * Meanwhile the pod keeps its state, with the failure as its reason. Each attempt runs in the pod's
 * turn.
 *
 * Pod and `what` are the key: after two failures of one kind only the later attempt is made.
 */
export function keepTrying(
  { id, plan, state }: PodRow,
  what: string,
  thrown: unknown,
  { records, locks, log, over, retries }: Supervision,
  attempt: (row: PodRow) => Promise<void>,
): void {
  const report = (why: unknown): void => {
    try {
      records.degraded(plan, what, why);
    } catch (thrown) {
      // Maybe there is no room to write anything: then this has to wait as well.
      log.warn({ pod_id: id, err: thrown }, `Failed to record: ${what}`);
    }
  };
  const work = (): Promise<void> =>
    locks.run(id, async () => {
      const row = records.get(id);
      if (over.aborted || row === undefined || !isSameLife(row.state, state)) return;
      try {
        await attempt(row);
      } catch (again) {
        if (!over.aborted) report(again);
        throw again;
      }
      log.info({ pod_id: id }, `no more: ${what}`);
      if (records.get(id)?.reason?.startsWith(what) === true)
        records.recovered(plan, `no more: ${what}`);
    });
  report(thrown);
  retries.failed(`pod ${id}: ${what}`, work, thrown);
}
