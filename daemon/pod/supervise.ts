import { isPodnetError, PodnetError, toPodnetError } from "../../core/errors.ts";
import type { Log } from "../../linux/log.ts";
import type { KeyedLock } from "../keyed-lock.ts";
import type { PodId } from "../../core/names.ts";
import type { Guest } from "../../guest-init/channel/guest.ts";
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
  const { vm, guest } = live;
  const ended = live.ended.signal;
  const note = (text: string, thrown?: unknown): void => {
    guard(live, watch, () => watch.records.note(live.plan, text, thrown));
  };
  let poweredOff = false;
  const onEnd = (): void => guard(live, watch, () => machineEnded(live, watch, poweredOff));
  if (ended.aborted) onEnd();
  else {
    ended.addEventListener("abort", onEnd, { once: true });
    live.subscriptions.add(() => ended.removeEventListener("abort", onEnd));
  }
  if (vm !== undefined) {
    live.subscriptions.add(
      vm.onEvent((event) => {
        if (event.kind === "guest-shutdown") poweredOff = true;
        if (event.kind === "guest-reset") note("the guest restarts");
        if (event.kind === "nic-removed" && !event.expected)
          note(`the guest let go of ${event.nicId}`);
      }),
    );
  }
  if (guest !== undefined) superviseGuest(live, guest, watch, note);
}

function superviseGuest(
  live: LivePod,
  guest: Guest,
  watch: Supervision,
  note: (text: string, thrown: unknown) => void,
): void {
  let queued = false;
  live.subscriptions.add(
    guest.onReady((identity) => {
      live.identity = identity;
      // However often a guest starts anew, one configuration at most waits for its turn.
      if (queued) return;
      queued = true;
      guard(live, watch, () =>
        configureAgain(live, watch, "the agent started anew", () => {
          queued = false;
        }),
      );
    }),
  );
  live.subscriptions.add(
    guest.onClose((reason) => {
      // The end of the machine closes the channel too, and is told on its own.
      if (!live.ended.signal.aborted) note("the agent is lost", reason);
    }),
  );
}

/** Runs what nobody waits for; its failure is logged, and harms no other pod. */
function guard(live: LivePod, watch: Supervision, body: () => void | Promise<void>): void {
  const run = async (): Promise<void> => body();
  run().catch((thrown: unknown) => {
    watch.log.error({ pod_id: live.plan.podId, err: thrown }, "Cannot follow the pod");
  });
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

/** Sends a guest its network again; `begun` is called when it is this one's turn. */
export async function configureAgain(
  live: LivePod,
  watch: Supervision,
  why: string,
  begun: () => void = () => {},
): Promise<void> {
  const { plan } = live;
  await watch.locks.run(plan.podId, async () => {
    begun();
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
