import { PodnetError } from "../../core/errors.ts";

/** Why a signal was aborted: its own `PodnetError`, or `CANCELLED`. */
export function abortError(signal: AbortSignal, what: string): PodnetError {
  const reason: unknown = signal.reason;
  if (reason instanceof PodnetError) return reason;
  const timedOut = reason instanceof Error && reason.name === "TimeoutError";
  return new PodnetError(
    timedOut ? "DEADLINE_EXCEEDED" : "CANCELLED",
    timedOut ? `${what} took too long` : `${what} was cancelled`,
    { cause: reason },
  );
}

/** The promise's outcome, or `abortError` as soon as the signal aborts; the promise itself goes on. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal, what: string): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const onAbort = (): void => reject(abortError(signal, what));
    if (signal.aborted) {
      promise.catch(() => {});
      onAbort();
      return;
    }
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
