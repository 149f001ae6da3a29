import type { LeaseState, Moment, Since, Trouble } from "./lease-state.ts";

/**
 * Whether a trouble of a lease results from its configuration: only another configuration ends it.
 */
export const isOfConfig = (kind: Trouble["kind"]): boolean =>
  kind === "config-missing" || kind === "config-invalid";

/** A trouble of one kind is one trouble, and has lasted since it was first seen. */
export const since = ({ troubles }: LeaseState, trouble: Trouble, at: number): Since<Trouble> => ({
  ...trouble,
  since: troubles.find(({ kind }) => kind === trouble.kind)?.since ?? at,
});

/**
 * Troubles of the lease itself; what the configuration makes, or calls that fail,
 * goes on.
 */
export function withTroubles(
  state: LeaseState,
  troubles: readonly Trouble[],
  { at }: Moment,
): LeaseState {
  const kept = state.troubles.filter(({ kind }) => isOfConfig(kind) || kind === "failing");
  return { ...state, troubles: [...kept, ...troubles.map((one) => since(state, one, at))] };
}
