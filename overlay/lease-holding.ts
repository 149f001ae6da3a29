import type { LeaseCommand, LeaseState, Own } from "./lease-state.ts";
import type { Revision } from "./store.ts";

/** The new state of a lease, and the commands that follow. */
export interface Step {
  readonly state: LeaseState;
  readonly commands: readonly LeaseCommand[];
}

/** A step without commands. */
export const only = (state: LeaseState): Step => ({ state, commands: [] });

/**
 * Puts new subnets on probation. The host's earlier subnets, if it had others, went with the same
 * transaction.
 */
export function onProbation(state: LeaseState, own: Own, until: Revision): Step {
  const former = state.own?.grant ?? 0n;
  const spare = state.spare?.grant === own.grant ? undefined : state.spare;
  return {
    state: {
      ...state,
      own: undefined,
      candidate: undefined,
      probation: { own, until },
      spare,
      drain: "no",
    },
    commands: former === 0n || former === own.grant ? [] : [{ kind: "revoke", grant: former }],
  };
}

/** Sets the host's own subnets. */
export function withOwn(state: LeaseState, own: Own): Step {
  const former = state.own?.grant ?? 0n;
  // The key of a host that had none has been on probation.
  const regained =
    state.own !== undefined && (state.own.regained === true || own.regained === true);
  return {
    state: {
      ...state,
      own: { ...own, regained },
      previous: own.subnets,
      candidate: undefined,
      probation: undefined,
      spare: state.spare?.grant === own.grant ? undefined : state.spare,
      losses: 0,
    },
    commands: former === 0n || former === own.grant ? [] : [{ kind: "revoke", grant: former }],
  };
}

/** The subnets are given up; they are the first to be asked for if the host joins again. */
export function letGo(state: LeaseState): Step {
  const grants = [state.own?.grant ?? 0n, state.spare?.grant ?? 0n].filter((grant) => grant !== 0n);
  return {
    state: { ...state, own: undefined, spare: undefined, drain: "no" },
    commands: grants.map((grant) => ({ kind: "revoke", grant })),
  };
}

/** Another host was first: choose other subnets, with another grant. */
export function dropped(state: LeaseState): Step {
  const grant = state.probation?.own.grant ?? 0n;
  return {
    state: { ...state, probation: undefined },
    commands: grant === 0n ? [] : [{ kind: "revoke", grant }],
  };
}
