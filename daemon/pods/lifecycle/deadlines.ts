import { PodnetError } from "../../../core/errors.ts";
import { guarded } from "../../../core/guard.ts";

/** A signal and what it takes to make it. */
export interface OwnedSignal extends Disposable {
  readonly signal: AbortSignal;
}

/** Runs `body` after a time, in milliseconds, unless disposed before. */
export function timer(ms: number, body: () => void): Disposable {
  const handle = setTimeout(guarded("qemu", body), ms);
  return { [Symbol.dispose]: () => clearTimeout(handle) };
}

/** Aborts with `DEADLINE_EXCEEDED` when `ms` have passed, `gone` of them already. */
export function deadlineOf(ms: number, gone: number): OwnedSignal {
  const controller = new AbortController();
  const limit = timer(Math.max(0, ms - gone), () => {
    controller.abort(
      new PodnetError("DEADLINE_EXCEEDED", `The pod did not run within ${ms} ms`, {
        hint: "See the guest's console and the host's load, or ask for a longer timeout",
        details: { limit_ms: ms },
      }),
    );
  });
  return { signal: controller.signal, [Symbol.dispose]: () => limit[Symbol.dispose]() };
}

/** The caller's signal with a reason of our own. */
export function cancelled(caller: AbortSignal | undefined): OwnedSignal {
  const controller = new AbortController();
  const onAbort = (): void => {
    controller.abort(
      new PodnetError("CANCELLED", "The caller went away", {
        hint: "Give a request id, so that a create continues without its caller",
        cause: caller?.reason,
      }),
    );
  };
  if (caller?.aborted) onAbort();
  caller?.addEventListener("abort", onAbort, { once: true });
  return {
    signal: controller.signal,
    [Symbol.dispose]: () => caller?.removeEventListener("abort", onAbort),
  };
}

/** Longest wait for the end of a machine that has hung up, milliseconds. */
const endReportMs = 500;

/**
 * Waits for the report of a machine's end: its connections close a moment before, and the end is
 * the error that matters.
 */
export async function reportOfEnd(ended: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  if (ended.aborted) resolve();
  ended.addEventListener("abort", () => resolve(), { once: true });
  using _limit = timer(endReportMs, resolve);
  await promise;
}
