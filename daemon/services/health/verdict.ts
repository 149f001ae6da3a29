import type { BackendCheck } from "../../../api/service-spec.ts";

/** What is known of a backend by its answers. */
export interface Verdict {
  readonly healthy: boolean;
  /** Whether it has been asked. A backend counts as healthy until then. */
  readonly asked: boolean;
  /** Answers in a row that speak against it. */
  readonly against: number;
  /** Why its last answer was none to be content with. */
  readonly why?: string;
}

export const unasked: Verdict = { healthy: true, asked: false, against: 0 };

/**
 * The verdict after one more answer: `why` it was a bad one, or undefined. So many answers in a row
 * turn it. Pure.
 */
export function judge(
  before: Verdict,
  why: string | undefined,
  { rise, fall }: Pick<BackendCheck, "rise" | "fall">,
): Verdict {
  const good = why === undefined;
  const said = { asked: true, ...(good ? {} : { why }) };
  if (good === before.healthy) return { healthy: good, against: 0, ...said };
  const against = before.against + 1;
  if (against >= (good ? rise : fall)) return { healthy: good, against: 0, ...said };
  return { healthy: before.healthy, against, ...said };
}
