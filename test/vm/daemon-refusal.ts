import type { ExecutionContext } from "ava";
import { type ErrorCode, isPodnetError, type PodnetError } from "../../core/errors.ts";
import type { Rig } from "./daemon-rig.ts";

/** What an error must say: its code, and where the fault is. */
export interface Refusal {
  readonly code: ErrorCode;
  readonly at: { readonly field: string } | { readonly step: string };
  readonly message?: RegExp;
}

/** The spec of a create, as a caller writes it. */
export type Spec = NonNullable<Parameters<Rig["client"]["pods"]["create"]>[0]["spec"]>;

/**
 * Creates what cannot work: the error says why, where, and what to do, and all is as before.
 * Answers the error.
 */
export async function refuses(
  t: ExecutionContext,
  rig: Rig,
  spec: Spec,
  refusal: Refusal,
  timeoutMs = 0,
): Promise<PodnetError | undefined> {
  const before = await rig.inventory();
  const error = await t.throwsAsync(rig.client.pods.create({ spec, timeoutMs }));
  t.deepEqual(await rig.changes(before), []);
  if (!isPodnetError(error)) return void t.fail(String(error));
  t.is(error.code, refusal.code, error.message);
  if ("field" in refusal.at) t.is(error.field, refusal.at.field);
  else t.is(error.step, refusal.at.step);
  t.truthy(error.hint, "the error says what to do");
  if (refusal.message !== undefined) t.regex(error.message, refusal.message);
  return error;
}
