import { PodnetError } from "../../core/errors.ts";
import type { QmpClient } from "../qmp/client.ts";

/**
 * Waits for the guest to let go; also ends when the time is up, the caller gives up, or the session
 * is lost.
 */
export async function leftWithin(
  held: { readonly leaving: PromiseWithResolvers<void> },
  qmp: QmpClient,
  ms: number,
  signal: AbortSignal,
): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const wake = (): void => resolve();
  const timer = setTimeout(wake, ms);
  const unsubscribe = qmp.onClose(wake);
  signal.addEventListener("abort", wake, { once: true });
  if (signal.aborted || qmp.closed !== undefined) wake();
  await Promise.race([held.leaving.promise, promise]);
  clearTimeout(timer);
  unsubscribe();
  signal.removeEventListener("abort", wake);
}

/** Throws `CANCELLED`. */
export function throwIfAborted(signal: AbortSignal): void {
  if (!signal.aborted) return;
  throw new PodnetError("CANCELLED", "The caller gave up", { cause: signal.reason });
}
