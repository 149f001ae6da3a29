import { PodnetError } from "./errors.ts";

/**
 * Why a signal was aborted: its own `PodnetError`, `DEADLINE_EXCEEDED` for `AbortSignal.timeout`,
 * else `CANCELLED`.
 */
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

/** Throws `abortError` if the signal is aborted. */
export function throwIfAborted(signal: AbortSignal | undefined, what: string): void {
  if (signal?.aborted === true) throw abortError(signal, what);
}

/**
 * The promise's outcome, or `abortError` as soon as the signal aborts; the promise itself goes on.
 */
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

/** A signal that aborts with `signal`, if there is one, and after `ms` at the latest. */
export const limited = (ms: number, signal: AbortSignal | undefined): AbortSignal =>
  AbortSignal.any([AbortSignal.timeout(ms), ...(signal === undefined ? [] : [signal])]);
