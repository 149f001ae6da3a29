import type { Lane } from "./lane.ts";
import type { Case, Point } from "./points.ts";

/** How a visit ended. */
export type Outcome =
  /** Nothing is amiss; `again`: the second point was reached too. */
  | { readonly kind: "clean"; readonly again: boolean }
  /** podnetd did not come by the point. */
  | { readonly kind: "unreached" }
  /** Something is left, lost or inconsistent. */
  | { readonly kind: "wrong"; readonly problems: readonly string[] };

/**
 * What the lane looks like with nothing but the bystander, with nothing but the daemon, and before
 * any daemon.
 */
export interface Baselines {
  readonly withBystander: string;
  readonly alone: string;
  readonly bare: string;
}

export interface Visit {
  readonly lane: Lane;
  readonly baselines: Baselines;
  readonly visited: Case;
  /** For `recover` with `kill`: the point of the recovery after that one. */
  readonly again: Point | undefined;
  /** The failpoints of the podnetd that the next case begins with: this one's restart. */
  readonly next: readonly string[];
}

export const judged = (problems: readonly string[], lane: Lane, again = false): Outcome =>
  problems.length === 0
    ? { kind: "clean", again }
    : { kind: "wrong", problems: [...problems, `podnetd said:\n${lane.log()}`] };
