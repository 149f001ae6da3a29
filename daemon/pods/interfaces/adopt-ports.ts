import type { PodRow } from "../store/pod-row.ts";
import { keepTrying } from "../lifecycle/keep-trying.ts";
import type { Supervision } from "../lifecycle/supervision.ts";

/** Holds the host ports in a pod's row. A port that another program has is retried. */
export async function adoptPorts(row: PodRow, watch: Supervision): Promise<void> {
  await watch.host.published.adopt(row.id, (row.before ?? row).plan.published);
  awaitPorts(row, watch);
}

/** Retries to hold the pod's ports that other programs have. */
export function awaitPorts({ id }: PodRow, watch: Supervision): void {
  const { records, host, log } = watch;
  const missing = host.published.missing(id);
  const row = missing && records.get(id);
  if (missing === undefined || row === undefined) return;
  log.error({ pod_id: id, err: missing }, "A published port is not held");
  keepTrying(row, "a published port is not served", missing, watch, (now) =>
    host.published.retry(id, (now.before ?? now).plan.published),
  );
}
