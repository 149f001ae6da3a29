/** Phases of a pod that is there. */
export type Phase = "creating" | "running" | "deleting";

/** What a call said of one pod name. An id is what tells a pod from its successor of the same name. */
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
  /** Was refused because the pod was neither running nor stopped. */
  | { readonly kind: "busy" };

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
