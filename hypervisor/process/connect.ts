import { setTimeout as delay } from "node:timers/promises";
import { isPodnetError, PodnetError } from "../../core/errors.ts";

const notYet = ["ENOENT", "ECONNREFUSED"];

/**
 * Connects to a socket QEMU is about to open: tried every few milliseconds until it is there,
 * `withinMs` have passed or the signal aborts. Any other failure is final.
 */
export async function whenThere<T>(
  connect: () => Promise<T>,
  withinMs: number,
  signal: AbortSignal,
): Promise<T> {
  const end = performance.now() + withinMs;
  for (let waitMs = 1; ; waitMs = Math.min(waitMs * 2, 16)) {
    try {
      return await connect();
    } catch (error) {
      const errno = isPodnetError(error, "SYSCALL_FAILED") ? error.details["errno"] : undefined;
      if (!notYet.includes(String(errno))) throw error;
      if (performance.now() >= end) throw notThere(withinMs, error);
    }
    await delay(waitMs, undefined, { signal }).catch(() => {
      throw new PodnetError("CANCELLED", "The wait for QEMU's socket was given up", {
        cause: signal.reason,
      });
    });
  }
}

const notThere = (ms: number, cause: unknown): PodnetError =>
  new PodnetError("QMP_TIMEOUT", `QEMU did not open its sockets within ${ms} ms`, {
    hint: "The host may be overloaded; see qemu.log in the pod's run directory",
    cause,
  });

/** Waits for a promise at most `ms`; undefined when it takes longer. */
export async function within<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  const timer = new AbortController();
  try {
    const late = delay(ms, undefined, { signal: timer.signal }).catch(() => undefined);
    return await Promise.race([promise, late]);
  } finally {
    timer.abort();
  }
}
