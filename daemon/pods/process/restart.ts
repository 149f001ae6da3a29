import type { RestartSpec } from "../../../api/pod-spec.ts";

/** The pauses before a start, milliseconds, as docker has them. */
const pauses = { first: 100, longest: 60_000 } as const;
/** A process that ran so long, milliseconds, is started soon after its next end. */
const steadyMs = 10_000;

/** How a start of a main process went. */
export interface PastStart {
  /** Starts by the policy in a row, since a caller started it or it ran for long. */
  readonly inARow: number;
  readonly ranMs: number;
  /** Exit code 0. */
  readonly success: boolean;
}

/**
 * The pause before the next start, and how many there were in a row with it; undefined where the
 * policy starts it no more. Pure.
 */
export function nextStart(
  restart: RestartSpec | undefined,
  { inARow, ranMs, success }: PastStart,
): { readonly pauseMs: number; readonly inARow: number } | undefined {
  if (restart === undefined) return undefined;
  if (restart.policy === "on-failure" && success) return undefined;
  const before = ranMs >= steadyMs ? 0 : inARow;
  if (restart.max !== undefined && before >= restart.max) return undefined;
  return { pauseMs: Math.min(pauses.longest, pauses.first * 2 ** before), inARow: before + 1 };
}
