import type { Subnets } from "./flannel/key.ts";
import type { LeaseState, Since, Trouble } from "./lease-state.ts";

/** How a host's lease is, in a word. */
export type LeasePhase =
  /** No configuration yet, or the store has not answered. */
  | "waiting"
  | "acquiring"
  | "held"
  /**
   * The key is gone, or another host's: the host keeps its subnets, and tries to have them back.
   */
  | "lost"
  | "draining"
  | "left";

export interface LeaseStatus {
  readonly phase: LeasePhase;
  readonly subnets: Subnets | undefined;
  /** Kept for this host: it does not end. */
  readonly reserved: boolean;
  readonly troubles: readonly Since<Trouble>[];
}

/** The status of a host's lease, for reports. */
export function leaseStatus(state: LeaseState): LeaseStatus {
  const { own, troubles } = state;
  return {
    phase: phaseOf(state),
    subnets: own?.subnets,
    reserved: own?.grant === 0n,
    troubles,
  };
}

function phaseOf(state: LeaseState): LeasePhase {
  const { own, intended, drain, config, listed, troubles, candidate, probation } = state;
  if (own === undefined) {
    if (intended === "leave" && candidate === undefined && probation === undefined) return "left";
    return config === undefined || !listed ? "waiting" : "acquiring";
  }
  if (drain !== "no") return "draining";
  return troubles.some(({ kind }) => kind === "lost" || kind === "taken") ? "lost" : "held";
}
