import type { Worker } from "./worker.ts";
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
 * What the worker looks like with nothing but the bystander, with nothing but the daemon, and
 * before any daemon.
 */
export interface Baselines {
  readonly withBystander: string;
  readonly alone: string;
  readonly bare: string;
}

export interface Visit {
  readonly worker: Worker;
  readonly baselines: Baselines;
  readonly visited: Case;
  /** For `recover` with `kill`: the point of the recovery after that one. */
  readonly again: Point | undefined;
  /** The failpoints of the podnetd that the next case begins with: this one's restart. */
  readonly next: readonly string[];
}

export const judged = (problems: readonly string[], worker: Worker, again = false): Outcome =>
  problems.length === 0
    ? { kind: "clean", again }
    : { kind: "wrong", problems: [...problems, `podnetd said:\n${worker.log()}`] };
