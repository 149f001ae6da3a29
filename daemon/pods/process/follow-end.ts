import { PodnetError, isPodnetError, toPodnetError } from "../../../core/errors.ts";
import type { Guest } from "../../../guest-init/channel/guest.ts";
import type { ProcessEnd } from "../../../guest-init/protocol/main-process.ts";
import { keepTrying } from "../lifecycle/keep-trying.ts";
import { type LivePod, unsubscribe } from "../lifecycle/live-pod.ts";
import { guard, type Supervision } from "../lifecycle/supervision.ts";
import { undoPod } from "../lifecycle/undo.ts";
import { afterEnd } from "./after-end.ts";
import { endText, failureOf, lostCode } from "./process-end.ts";
import { openProcess } from "./start-process.ts";

/** Ends a pod with its main process. */
export function followEnd(live: LivePod, watch: Supervision): void {
  const { process } = live;
  if (process === undefined) return;
  let wanted = true;
  live.subscriptions.add(() => {
    wanted = false;
  });
  guard(live, watch, async () => {
    const end = await process.over;
    if (wanted && end !== undefined) await processEnded(live, watch, end);
  });
}

/**
 * Has the output of the main process again, from a guest that was reached anew. A guest that knows
 * of none has started anew: then the process is lost, and with it the pod.
 */
export async function followAgain(
  live: LivePod,
  watch: Supervision,
  guest: Guest,
  signal: AbortSignal,
): Promise<void> {
  const run = watch.records.processes.get(live.plan.podId)?.run;
  if (live.plan.process === undefined || run === undefined) return;
  const isNew = live.process === undefined;
  live.process ??= openProcess(live, watch.host, run);
  if (isNew) followEnd(live, watch);
  try {
    await live.process.follow(guest, signal);
  } catch (thrown) {
    if (!isPodnetError(thrown, "AGENT_REFUSED", "UNSUPPORTED")) throw thrown;
    live.ended.abort(
      new PodnetError("PROCESS_FAILED", "The guest restarted, and its main process is gone", {
        hint: "See the guest's console: podnet logs --console",
        details: { exit_code: lostCode },
      }),
    );
  }
}

/** The machine ends with its main process. */
async function processEnded(live: LivePod, watch: Supervision, end: ProcessEnd): Promise<void> {
  const { records, locks } = watch;
  const { podId } = live.plan;
  await locks.run(podId, async () => {
    const row = records.get(podId);
    if (row?.state !== "running" && row?.state !== "paused") return;
    const wasPaused = row.state === "paused";
    const record = (): Promise<void> => recordEnd(live, watch, end);
    if (wasPaused) live.time.go();
    await record().catch((thrown: unknown) => {
      keepTrying(row, "the end of its main process cannot be recorded", thrown, watch, record);
    });
  });
}

async function recordEnd(live: LivePod, watch: Supervision, end: ProcessEnd): Promise<void> {
  const { records, host } = watch;
  const { plan } = live;
  const reason = endText(end);
  records.state(plan, "stopping", { reason });
  unsubscribe(live);
  watch.gone(live);
  const [failure] = await undoPod(live, host, { graceful: true });
  const error = failure === undefined ? failureOf(end) : toPodnetError(failure);
  watch.writeDown(plan, () => {
    if (error === undefined) records.state(plan, "stopped", { reason });
    else records.state(plan, "failed", { error });
    afterEnd(live, watch);
  });
}
