import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { perform } from "../../core/effect.ts";

/** Milliseconds from SIGTERM to SIGKILL. */
export const graceMs = 500;

/** Milliseconds after SIGKILL in which what was killed lets go of its pipes. */
const pipesMs = 100;
/** Between two looks whether a group is still there, milliseconds. */
const lookMs = 20;

/**
 * Closes a command's outputs when it should have ended `timeoutMs` or an abort ago, and its grace
 * is over: what it started may have left its process group, so that no signal of ours reaches it,
 * and holds them for as long as it likes.
 */
export function closeOutputs(
  outputs: readonly Readable[],
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Disposable {
  const closeIn = (ms: number): NodeJS.Timeout =>
    setTimeout(
      () => {
        for (const output of outputs) output.destroy();
      },
      ms + graceMs + pipesMs,
    );
  let timer = closeIn(timeoutMs);
  const onAbort = (): void => {
    clearTimeout(timer);
    timer = closeIn(0);
  };
  if (signal?.aborted === true) onAbort();
  signal?.addEventListener("abort", onAbort, { once: true });
  return {
    [Symbol.dispose]: () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    },
  };
}

/**
 * Waits until nothing is left of the process group of a command that was ended; what is still there
 * after the grace is killed.
 */
export async function endGroup(pid: number): Promise<void> {
  const end = performance.now() + graceMs;
  while (signalGroup(pid, 0)) {
    if (performance.now() >= end) {
      signalGroup(pid, "SIGKILL");
      return;
    }
    await delay(lookMs);
  }
}

/** Signals the process group of a command. Whether a process got it; 0 only asks. */
export function signalGroup(pid: number, signal: "SIGTERM" | "SIGKILL" | 0): boolean {
  try {
    return perform("signal", "command", () => process.kill(-pid, signal));
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === "ESRCH") return false;
    throw thrown;
  }
}
