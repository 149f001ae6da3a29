import { assertNever } from "../../core/brand.ts";
import type { Call, Outcome, Phase } from "./history.ts";

/** The whole state of one pod name. */
export type PodState =
  | { readonly kind: "absent" }
  | {
      readonly kind: "present";
      /** Undefined while no answer has named it: the create that made it was cut short. */
      readonly id: string | undefined;
      readonly phase: Phase;
      /** The call that made it. */
      readonly creator: number;
      /** A delete has asked its create to end. */
      readonly cutting: boolean;
    };

export const absent: PodState = { kind: "absent" };

/** A call's progress: how many of its steps have been taken; `done` when none is left. */
export type Progress = number | "done";

/** One step a call may take now. */
export interface Move {
  readonly state: PodState;
  readonly progress: Progress;
}

/**
 * Whether the state is that pod, or may be: the id of a create that was cut is not known until an
 * answer has it.
 */
const isPod = (state: PodState, id: string): state is Extract<PodState, { kind: "present" }> =>
  state.kind === "present" && (state.id === undefined || state.id === id);

/**
 * The steps a call may take in a state. A create and a delete are not done at a moment: both have a
 * beginning others can see, the rows `creating` and `deleting`. An answer that only looks is done
 * at one moment and changes nothing. This is what podnetd promises, written down without looking at
 * how it does it.
 */
export function moves(
  call: Call,
  index: number,
  progress: number,
  state: PodState,
): readonly Move[] {
  const { outcome } = call;
  const done = (next: PodState): readonly Move[] => [{ state: next, progress: "done" }];
  switch (outcome.kind) {
    case "created":
      return create(outcome.id, false, index, progress, state);
    case "cut":
      return create(undefined, true, index, progress, state);
    case "deleted":
      return remove(outcome.id, progress, state);
    case "taken":
      return state.kind === "present" ? done(state) : [];
    case "became":
      return become(outcome, index, progress, state);
    case "halted":
      return halt(index, progress, state);
    case "nothing":
    case "exhausted":
      // Says nothing of this name; whether there was no address is for all names together:
      // addresses.ts.
      return done(state);
    case "absent":
      return state.kind === "absent" ? done(state) : [];
    case "seen":
      return isPod(state, outcome.id) && state.phase === outcome.phase
        ? done({ ...state, id: outcome.id })
        : [];
    case "busy":
      return state.kind === "present" && !outcome.takes.includes(state.phase) ? done(state) : [];
    default:
      return assertNever(outcome);
  }
}

function create(
  id: string | undefined,
  cut: boolean,
  creator: number,
  progress: number,
  state: PodState,
): readonly Move[] {
  if (progress === 0) {
    if (state.kind === "present") return [];
    return [
      { state: { kind: "present", id, phase: "creating", creator, cutting: false }, progress: 1 },
    ];
  }
  if (state.kind !== "present" || state.creator !== creator || state.phase !== "creating")
    return [];
  if (!cut) return [{ state: { ...state, phase: "running" }, progress: "done" }];
  return state.cutting ? [{ state: absent, progress: "done" }] : [];
}

function become(
  { id, from, by, phase }: Extract<Outcome, { kind: "became" }>,
  index: number,
  progress: number,
  state: PodState,
): readonly Move[] {
  if (!isPod(state, id)) return [];
  const now = { ...state, id };
  if (progress === 1)
    return state.creator === index && state.phase === by
      ? [{ state: { ...now, phase }, progress: "done" }]
      : [];
  if (state.phase === phase) return [{ state: now, progress: "done" }];
  if (!from.includes(state.phase)) return [];
  if (by === undefined) return [{ state: { ...now, phase }, progress: "done" }];
  return [{ state: { ...now, phase: by, creator: index }, progress: 1 }];
}

/** A pod that has run stays when its start is cut short, until the delete that did it is done. */
function halt(creator: number, progress: number, state: PodState): readonly Move[] {
  if (state.kind !== "present") return [];
  if (progress === 0)
    return state.phase === "stopped" || state.phase === "failed"
      ? [{ state: { ...state, phase: "creating", creator, cutting: false }, progress: 1 }]
      : [];
  return state.creator === creator && state.phase === "creating" && state.cutting
    ? [{ state: { ...state, phase: "failed" }, progress: "done" }]
    : [];
}

const steady: readonly Phase[] = ["running", "paused", "stopped", "failed"];

function remove(id: string, progress: number, state: PodState): readonly Move[] {
  if (progress === 0) {
    // It has found the pod, and asks a create under way to end.
    if (!isPod(state, id)) return [];
    const cutting = state.cutting || state.phase === "creating";
    return [{ state: { ...state, id, cutting }, progress: 1 }];
  }
  const there = isPod(state, id) && state.id === id;
  if (progress === 1) {
    // The create it cut short, or another delete, has left nothing.
    if (!there) return [{ state, progress: "done" }];
    return steady.includes(state.phase)
      ? [{ state: { ...state, phase: "deleting" }, progress: 2 }]
      : [];
  }
  return there && state.phase === "deleting" ? [{ state: absent, progress: "done" }] : [];
}
