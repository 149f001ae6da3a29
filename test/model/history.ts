/** Phases of a pod that is there. */
export type Phase =
  | "creating"
  | "running"
  | "paused"
  | "stopping"
  | "stopped"
  | "failed"
  | "deleting";

/**
 * What a call said of one pod name. An id distinguishes a pod from its successor of the same name.
 */
export type Outcome =
  /** Created, and running since some moment of the call. */
  | { readonly kind: "created"; readonly id: string }
  /** Refused: the name was taken. */
  | { readonly kind: "taken" }
  /** The create was cut short by a delete. */
  | { readonly kind: "cut" }
  /** Nothing was done, for a reason that has nothing to do with the name: no address was left. */
  | { readonly kind: "exhausted" }
  | { readonly kind: "deleted"; readonly id: string }
  /** A delete found nothing; a look or a start did not. */
  | { readonly kind: "absent" }
  /** Seen in a phase, by a look or a list. */
  | { readonly kind: "seen"; readonly id: string; readonly phase: Phase }
  /** It was made so from one of these phases, by way of another maybe; or was so already. */
  | {
      readonly kind: "became";
      readonly id: string;
      readonly from: readonly Phase[];
      readonly by?: Phase;
      readonly phase: Phase;
    }
  /** A start was cut short by a delete. */
  | { readonly kind: "halted" }
  /**
   * It says nothing of the pod's phase: another call came in between, or what it was about is not
   * there.
   */
  | { readonly kind: "nothing" }
  /** Was refused because the pod was in none of the phases that it takes. */
  | { readonly kind: "busy"; readonly takes: readonly Phase[] };

/** One call as its caller saw it: it took effect, if it did, between the two moments. */
export interface Call {
  readonly invoked: number;
  readonly returned: number;
  readonly name: string;
  readonly outcome: Outcome;
  /** For messages: `client 7 delete`. */
  readonly by: string;
}

export const describe = ({ invoked, returned, by, name, outcome }: Call): string =>
  `${invoked.toFixed(3)}–${returned.toFixed(3)} ${by} ${name}: ${JSON.stringify(outcome)}`;

/** What calls about a pod's life make of which phases; in any other they are refused. */
export const lifecycle = {
  pause: { from: ["running"], phase: "paused", takes: ["running", "paused"] },
  resume: { from: ["paused"], phase: "running", takes: ["running", "paused"] },
  stop: {
    from: ["running", "paused", "failed"],
    by: "stopping",
    phase: "stopped",
    takes: ["running", "paused", "failed", "stopped", "stopping"],
  },
  start: {
    from: ["stopped", "failed"],
    by: "creating",
    phase: "running",
    takes: ["running", "stopped", "failed"],
  },
} as const;
