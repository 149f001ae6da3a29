import { toPodnetError } from "../../../core/errors.ts";
import { answerAgain } from "../interfaces/answer-guest.ts";
import { followAgent } from "../guest/follow-agent.ts";
import { reportEndedShares } from "../guest/guest-shares.ts";
import { keepTrying } from "./keep-trying.ts";
import { consoleTailText, panicBeforeReset } from "../guest/console-tail.ts";
import { followRunState } from "./lifecycle.ts";
import { machineKindOf } from "../machine/machine-of.ts";
import { afterEnd } from "../process/after-end.ts";
import { followEnd } from "../process/follow-end.ts";
import { diskLeft } from "../disks/live-disks.ts";
import { leftAtLast } from "../interfaces/live-leaving.ts";
import { type LivePod, unsubscribe } from "./live-pod.ts";
import { guard, type Supervision } from "./supervision.ts";
import { undoPod } from "./undo.ts";

/** Between two equal events of a pod, milliseconds. */
const noteEveryMs = 1000;
/**
 * Most events a second that a machine may send and podnetd ignores. A start causes some ten; an
 * honest machine stays far below.
 */
const unheededPerS = 100;

/** Follows a running pod: the end of its machine, its pauses, NICs that leave, its agent. */
export function supervise(live: LivePod, watch: Supervision): void {
  const { vm } = live;
  const ended = live.ended.signal;
  const { clock } = watch.host;
  const noted = new Map<string, number>();
  const note = (what: string, text = (): string => what): void => {
    // A guest may restart many times a second; each event is a commit.
    if (clock.monotonic() - (noted.get(what) ?? -noteEveryMs) < noteEveryMs) {
      watch.dropped?.("guest_notes");
      return;
    }
    noted.set(what, clock.monotonic());
    guard(live, watch, () => watch.records.note(live.plan, text()));
  };
  let second = { since: -1000, events: 0 };
  const storm = (): void => {
    const now = clock.monotonic();
    if (now - second.since >= 1000) second = { since: now, events: 0 };
    second.events++;
    if (second.events > unheededPerS) watch.dropped?.("machine_events");
  };
  let poweredOff = false;
  const onEnd = (): void => guard(live, watch, () => machineEnded(live, watch, poweredOff));
  if (ended.aborted) onEnd();
  else {
    ended.addEventListener("abort", onEnd, { once: true });
    live.subscriptions.add(() => ended.removeEventListener("abort", onEnd));
  }
  const reportEnded = (): void => guard(live, watch, () => reportEndedShares(live, watch));
  if (vm !== undefined) {
    reportEnded();
    // A console begins before its pod runs.
    watch.overwritten?.(vm.takeOverwritten());
    live.subscriptions.add(
      vm.onEvent((event) => {
        if (event.kind === "guest-shutdown") poweredOff = true;
        if (event.kind === "guest-reset") note("the guest restarts", () => restarted(live));
        if (event.kind === "unheeded" || event.kind === "channel") storm();
        if (event.kind === "console-overwritten") watch.overwritten?.(vm.takeOverwritten());
        if (event.kind === "nic-removed" && !event.expected)
          note(`the guest let go of ${event.nicId}`);
        if (event.kind === "nic-removed" && event.expected)
          guard(live, watch, () => leftAtLast(live, event.nicId, watch));
        if (event.kind === "share-ended") reportEnded();
        if (event.kind === "disk-removed")
          guard(live, watch, () => diskLeft(live, event.disk, watch));
      }),
    );
  }
  followRunState(live, watch);
  followEnd(live, watch);
  followAgent(live, watch);
  answerAgain(live, watch);
}

/**
 * Counts a restart of the guest and returns its reason, the console tail. Resets within a second
 * (`noteEveryMs`) count as one: the firmware of a PC resets the machine once more after the guest
 * did.
 */
function restarted(live: LivePod): string {
  const count = live.restarts.count + 1;
  const panic = panicBeforeReset(live.vm?.consoleTail() ?? new Uint8Array());
  const text =
    panic === undefined
      ? `the guest restarted by itself (restart ${count})`
      : `the guest panicked and restarted (restart ${count}): ${panic}`;
  live.restarts = { count, text };
  return text;
}

/** The machine is gone: its resources are freed at once, and the addresses stay the pod's. */
async function machineEnded(live: LivePod, watch: Supervision, poweredOff: boolean): Promise<void> {
  await watch.locks.run(live.plan.podId, async () => {
    // A delete that came first has ended it, and may have deleted the row.
    const row = watch.records.get(live.plan.podId);
    if (row?.state !== "running" && row?.state !== "paused") return;
    unsubscribe(live);
    const record = (): Promise<void> => recordEnd(live, watch, poweredOff);
    await record().catch((thrown: unknown) => {
      keepTrying(row, "the end of its VM cannot be recorded", thrown, watch, record);
    });
  });
}

async function recordEnd(live: LivePod, watch: Supervision, poweredOff: boolean): Promise<void> {
  const { plan } = live;

  const console = consoleTailText(live.vm?.consoleTail() ?? new Uint8Array());
  const error = toPodnetError(live.ended.signal.reason).with({ details: { console } });
  const ours = machineKindOf(plan.vm).isOwn;
  if (poweredOff && ours) watch.records.state(plan, "stopped", { reason: "the guest powered off" });
  else watch.records.state(plan, "failed", { error });
  afterEnd(live, watch);
  watch.gone(live);
  const free = (): Promise<void> => freeHeld(live, watch);
  await free().catch((thrown: unknown) => {
    const row = watch.records.get(plan.podId);
    if (row !== undefined)
      keepTrying(row, "what its machine held cannot be freed", thrown, watch, free);
  });
}

/** Frees the resources of a machine that has ended, and throws the first failure. */
async function freeHeld(live: LivePod, { host, log }: Supervision): Promise<void> {
  const failures = await undoPod(live, host, { graceful: false });
  for (const failure of failures)
    log.error({ pod_id: live.plan.podId, err: failure }, "Failed to release the VM's resources");
  if (failures.length > 0) throw failures[0];
}
