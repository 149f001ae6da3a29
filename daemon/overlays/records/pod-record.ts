import type { NetworkName } from "../../../core/names.ts";
import type { PodRecord } from "../../../overlay/pods/record.ts";
import { staying } from "../../pods/store/pod-plan.ts";
import type { PodRow } from "../../pods/store/pod-row.ts";

/** The data about a pod for other hosts: its location and state, but not how it is built. */
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
