import { setTimeout as delay } from "node:timers/promises";
import type { PodPlan } from "../store/pod-plan.ts";
import type { FollowedProcess } from "./followed-process.ts";

const killSignal = 9;
/** How long the guest may take to report the end of a killed process, milliseconds. */
const killMs = 2000;

/**
 * Asks the main process to end, with the signal that its image names, and kills it when its time is
 * over. Never throws: the machine ends next.
 */
export async function stopProcess(followed: FollowedProcess, { process }: PodPlan): Promise<void> {
  if (process === undefined || followed.end !== undefined) return;
  const { stopSignal, stopTimeoutMs } = process;
  for (const [signal, waitMs] of [
    [stopSignal, stopTimeoutMs],
    [killSignal, killMs],
  ] as const) {
    const sent = await followed.trySignal(signal);
    if (!sent) return;
    const limit = new AbortController();
    await Promise.race([
      followed.over,
      delay(waitMs, undefined, { signal: limit.signal }).catch(() => {}),
    ]);
    limit.abort();
    if (followed.end !== undefined) return;
  }
}
