import type { LeaseState, Moment, Since, Trouble } from "./lease-state.ts";

/**
 * Of a lease's troubles those that its configuration makes: only another configuration ends them.
 */
export const isOfConfig = (kind: Trouble["kind"]): boolean =>
  kind === "config-missing" || kind === "config-invalid";

/** A trouble of the same kind is the same trouble, and has gone on since then. */
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
