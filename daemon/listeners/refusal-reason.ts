import type { PodnetError } from "../../core/errors.ts";

/** The label that a refusal is counted by: its limit's name, or its code. */
export function reasonOf({ code, details }: PodnetError): string {
  const { limit } = details;
  return typeof limit === "string" ? limit.replace("limits.", "") : code.toLowerCase();
}
