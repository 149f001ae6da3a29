import { malformed } from "../protocol/fields.ts";
import type { Reply } from "./reply.ts";
import { sys } from "./sys.ts";

/**
 * STEPS: does what the host has decided, until something fails (native/steps.c). The engine sees
 * those alone that come while it has something else to do.
 */
export function carryOut(payload: Uint8Array): Reply {
  const results = sys.steps(payload);
  if (results === undefined) throw malformed("Steps are unknown, or cut off");
  return { payload: results };
}
