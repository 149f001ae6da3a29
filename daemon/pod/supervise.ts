import { isPodnetError, PodnetError, toPodnetError } from "../../core/errors.ts";
import type { Log } from "../log.ts";
import type { KeyedLock } from "../keyed-lock.ts";
import type { PodId } from "../../core/names.ts";
import { guestMessage } from "./actions.ts";
import { compareGuest } from "./compare-guest.ts";
import type { Host } from "./host.ts";
import { type LivePod, unsubscribe } from "./live-pod.ts";
import { lastWords } from "./last-words.ts";
import type { PodRecords } from "./records.ts";
import { undoPod } from "./undo.ts";

export interface Supervision {
  readonly host: Host;
  readonly records: PodRecords;
  readonly locks: KeyedLock<PodId>;
  readonly log: Log;
  /** The pod has no machine any more. */
  gone(live: LivePod): void;
}

/** Follows a running pod: the end of its machine, NICs that leave, guests that start anew. */
export function supervise(live: LivePod, watch: Supervision): void {
  const { vm, guest, plan } = live;
  const ended = live.ended.signal;
  let poweredOff = false;
  const onEnd = (): void => void machineEnded(live, watch, poweredOff);
  if (ended.aborted) onEnd();
  else {
    ended.addEventListener("abort", onEnd, { once: true });
    live.subscriptions.add(() => ended.removeEventListener("abort", onEnd));
  }
  if (vm !== undefined) {
    live.subscriptions.add(
      vm.onEvent((event) => {
        if (event.kind === "guest-shutdown") poweredOff = true;
        if (event.kind === "guest-reset") watch.records.note(plan, "the guest restarts");
        if (event.kind === "nic-removed" && !event.expected) {
          watch.records.note(plan, `the guest let go of ${event.nicId}`);
        }
      }),
    );
  }
  if (guest !== undefined) {
    live.subscriptions.add(
      guest.onReady((identity) => {
        live.identity = identity;
        void configureAgain(live, watch, "the agent started anew");
      }),
    );
    live.subscriptions.add(
      guest.onClose((reason) => {
        // The end of the machine closes the channel too, and is told on its own.
        if (!ended.aborted) watch.records.note(plan, "the agent is lost", reason);
      }),
    );
  }
}

/** The machine is gone: what it held is freed at once, the addresses stay the pod's. */
async function machineEnded(live: LivePod, watch: Supervision, poweredOff: boolean): Promise<void> {
  const { plan } = live;
  await watch.locks.run(plan.podId, async () => {
    // A delete that came first has ended it, and may have deleted the row.
    const row = watch.records.get(plan.podId);
    if (row?.state !== "running") return;
    unsubscribe(live);
    const console = lastWords(live.vm?.consoleTail() ?? new Uint8Array());
    const error = toPodnetError(live.ended.signal.reason).with({ details: { console } });
    if (poweredOff) watch.records.state(plan, "stopped", { reason: "the guest powered off" });
    else watch.records.state(plan, "failed", { error });
    watch.gone(live);
    for (const failure of await undoPod(live, watch.host, { graceful: false })) {
      watch.log.error({ pod_id: plan.podId, err: failure }, "Cannot free what the machine held");
    }
  });
}

/** Sends a guest its network again. */
export async function configureAgain(
  live: LivePod,
  watch: Supervision,
  why: string,
): Promise<void> {
  const { plan } = live;
  await watch.locks.run(plan.podId, async () => {
    const { guest } = live;
    if (guest === undefined || watch.records.get(plan.podId)?.state !== "running") return;
    try {
      const message = guestMessage(live, watch.host);
      live.observed = await guest.configure(
        message,
        AbortSignal.any([live.ended.signal, AbortSignal.timeout(message.waitMs + 5000)]),
      );
      compareGuest(plan.guest, live.observed);
      watch.records.configured(live, `configured again: ${why}`);
    } catch (thrown) {
      if (live.ended.signal.aborted) return;
      const error = isPodnetError(thrown)
        ? thrown
        : new PodnetError("AGENT_TIMEOUT", "The guest did not take its configuration", {
            cause: thrown,
          });
      watch.records.note(plan, `not configured again: ${error.message}`, error);
      watch.log.warn({ pod_id: plan.podId, err: error }, "Cannot configure the guest again");
    }
  });
}
