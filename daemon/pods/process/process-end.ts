import { PodnetError } from "../../../core/errors.ts";
import type { ProcessEnd } from "../../../guest-init/protocol/main-process.ts";

/** The exit code of a process that ended with its machine: as if it was killed. */
export const lostCode = 137;

/** Exit code as a shell has it. */
export const exitCodeOf = (end: ProcessEnd | undefined): number =>
  end === undefined ? lostCode : "signal" in end ? 128 + end.signal : end.code;

/** An end for people. */
export const endText = (end: ProcessEnd): string =>
  "signal" in end
    ? `the main process was ended by signal ${end.signal}`
    : `the main process ended with exit code ${end.code}`;

/** The failure of a pod whose main process ended so; undefined for success. */
export function failureOf(end: ProcessEnd): PodnetError | undefined {
  const code = exitCodeOf(end);
  if (code === 0) return undefined;
  const text = endText(end);
  return new PodnetError("PROCESS_FAILED", `${text.charAt(0).toUpperCase()}${text.slice(1)}`, {
    hint: "See what it wrote: podnet logs",
    details: { exit_code: code },
  });
}
