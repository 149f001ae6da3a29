import type { PodRow } from "../store/pod-row.ts";
import { keepTrying } from "../lifecycle/keep-trying.ts";
import type { Supervision } from "../lifecycle/supervision.ts";

/** Takes the host ports that a pod has by its row; one that somebody else has now is tried again. */
export async function adoptPorts(row: PodRow, watch: Supervision): Promise<void> {
  await watch.host.published.adopt(row.id, (row.before ?? row).plan.published);
  awaitPorts(row, watch);
}

/** Tries again to hold the ports of a pod that somebody else has. */
export function awaitPorts({ id }: PodRow, watch: Supervision): void {
  const { records, host, log } = watch;
  const missing = host.published.missing(id);
  const row = records.get(id);
  if (missing === undefined || row === undefined) return;
  log.error({ pod_id: id, err: missing }, "A published port is not held");
  keepTrying(row, "a published port is not served", missing, watch, (now) =>
    host.published.retry(id, (now.before ?? now).plan.published),
  );
}
