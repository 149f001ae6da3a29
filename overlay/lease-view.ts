import type { HostLeaseState } from "./host-lease.ts";
import type { LeaseState } from "./lease-state.ts";
import { leaseStatus } from "./lease-status.ts";

/**
 * The state of a lease in etcd as every subnet manager reports it. An overlay counts as left only
 * after the keys of an earlier start were read from etcd and given up.
 */
export function hostLeaseState(state: LeaseState): HostLeaseState {
  const { config, own, listed, staleSince, intended, request, settings } = state;
  const status = leaseStatus(state);
  const unsure = status.phase === "left" && (!listed || request !== undefined);
  return {
    ...status,
    phase: unsure ? "waiting" : status.phase,
    config,
    own,
    listed,
    staleSince,
    leaving: intended === "leave",
    time:
      own === undefined || own.grant === 0n
        ? undefined
        : { renewedAt: own.grantedAt, endsAt: own.grantedAt + settings.ttlSeconds * 1000 },
  };
}
