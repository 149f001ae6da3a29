import { setTimeout as delay } from "node:timers/promises";
import { isPodnetError } from "../../core/errors.ts";
import { guard } from "../../core/guard.ts";
import type { ServiceParts } from "../api/context.ts";

/** Milliseconds until pods that are gone are looked for again after a failure. */
const againMs = 1000;

/** Sweeps up what pods that are gone have left, now and as pods go, until `signal` aborts. */
export function sweepAfterPods(
  { journal, log }: Pick<ServiceParts, "journal" | "log">,
  sweep: () => Promise<void>,
  signal: AbortSignal,
): void {
  void guard("services", async () => {
    while (!signal.aborted) {
      try {
        const after = journal.newest;
        await sweep();
        for await (const { kind } of journal.watch(after, signal))
          if (kind === "deleted") await sweep();
      } catch (thrown) {
        // One that fell too far behind looks at what there is.
        if (!isPodnetError(thrown, "EVENTS_LOST"))
          log.warn({ err: thrown }, "Failed to sweep up after pods that are gone; retrying");
        await delay(againMs, undefined, { signal }).catch(() => {});
      }
    }
  });
}
