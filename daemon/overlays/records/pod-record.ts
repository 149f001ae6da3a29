import type { NetworkName } from "../../../core/names.ts";
import type { PodRecord } from "../../../overlay/pods/record.ts";
import { staying } from "../../pods/store/pod-plan.ts";
import type { PodRow } from "../../pods/store/pod-row.ts";

/**
 * What other hosts are notified of a pod: where it is and how it is, and nothing of how it is made.
 */
export function podRecordOf(
  { id, name, state, createdMs, spec, plan }: PodRow,
  overlayOf: (network: NetworkName) => NetworkName | undefined,
): PodRecord {
  return {
    id,
    name,
    state,
    createdMs,
    labels: spec.labels,
    interfaces: staying(plan.interfaces).map(({ network, guestName, addresses }) => ({
      network,
      overlay: network === undefined ? undefined : overlayOf(network),
      name: guestName,
      addresses,
    })),
  };
}
