import { readFileSync, writeFileSync } from "node:fs";
import { perform } from "../../core/effect.ts";

/**
 * oom_score_adj (proc(5)) of machines: when the host runs out of memory they are ended before
 * podnetd and the rest of the host, whose score is 0 or less. A score of 500 counts as half of the
 * host's memory.
 */
export const machineOomScore = 500;

/**
 * Raises the score of a process of this user to that of machines; a higher one stays. An ended
 * process is skipped.
 */
export function raiseOomScore(pid: number): void {
  const file = `/proc/${pid}/oom_score_adj`;
  try {
    if (Number(readFileSync(file, "latin1")) >= machineOomScore) return;
    perform("file", "raise oom score", () => writeFileSync(file, `${machineOomScore}`));
  } catch (thrown) {
    if (!["ENOENT", "ESRCH"].includes((thrown as NodeJS.ErrnoException).code ?? "")) throw thrown;
  }
}
