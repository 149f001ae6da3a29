import type { Supervision } from "../lifecycle/supervision.ts";
import type { PodContents } from "../store/pod-row.ts";
import { nextStart } from "./restart.ts";

/**
 * Records that the main process of a pod has ended, with its machine unless its end is known, and
 * has it started again where the restart policy says so. The row says when, so that the next
 * podnetd does it if this one ends before.
 */
export function afterEnd(
  { plan, spec }: PodContents,
  { records, host, restartLater }: Pick<Supervision, "records" | "host" | "restartLater">,
): void {
  const row = records.processes.get(plan.podId);
  if (plan.process === undefined || row === undefined) return;
  const now = host.clock.now();
  const endedMs = row.endedMs ?? now;
  const success = row.end !== undefined && "code" in row.end && row.end.code === 0;
  const next = nextStart(spec.restart, {
    inARow: row.inARow,
    ranMs: endedMs - row.startedMs,
    success,
  });
  if (next === undefined) return records.processes.gone(plan);
  const { inARow, pauseMs } = next;
  const text = `main process starts again in ${pauseMs} ms`;
  records.processes.set(plan, { endedMs, inARow, nextMs: now + pauseMs }, text);
  restartLater(plan.podId, pauseMs);
}
