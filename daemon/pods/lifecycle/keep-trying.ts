import type { PodRow } from "../store/pod-row.ts";
import type { Supervision } from "./supervision.ts";

/** Between attempts at what failed for a pod. */
export const podBackoff = { firstMs: 250, longestMs: 15_000 } as const;

/** A machine that is paused is the one that ran: what is to be put right stays so. */
const isSameLife = (one: PodRow["state"], other: PodRow["state"]): boolean =>
  one === other || [one, other].every((state) => state === "running" || state === "paused");

/**
 * Does again what failed for a pod, until it works, the pod is in another state, or the daemon
 * ends. Meanwhile the pod keeps its state and says what is wrong as its reason. Each attempt has
 * the pod to itself.
 *
 * Pod and `what` are the key: of two failures of one kind the later attempt is the one that is
 * made.
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
      records.ailing(plan, what, why);
    } catch (thrown) {
      // Maybe there is no room to write anything: then this has to wait as well.
      log.warn({ pod_id: id, err: thrown }, `Not written down: ${what}`);
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
        records.well(plan, `no more: ${what}`);
    });
  report(thrown);
  retries.failed(`pod ${id}: ${what}`, work, thrown);
}
