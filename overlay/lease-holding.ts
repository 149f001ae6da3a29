import type { LeaseCommand, LeaseState, Own } from "./lease-state.ts";
import type { Revision } from "./store.ts";

/** What has become of a lease, and what is to be done about it. */
export interface Step {
  readonly state: LeaseState;
  readonly commands: readonly LeaseCommand[];
}

/** Nothing is to be done. */
export const only = (state: LeaseState): Step => ({ state, commands: [] });

/** What the host had before, if it is to have others, went with the same transaction. */
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
  // (What was made by a host that had none has been on probation.)
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

/** Somebody was first: other subnets, and another grant. */
export function dropped(state: LeaseState): Step {
  const grant = state.probation?.own.grant ?? 0n;
  return {
    state: { ...state, probation: undefined },
    commands: grant === 0n ? [] : [{ kind: "revoke", grant }],
  };
}
