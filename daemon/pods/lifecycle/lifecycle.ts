import { setTimeout as delay } from "node:timers/promises";
import { limited } from "../../../core/aborting.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import type { RunningVm, RunState } from "../../../hypervisor/driver.ts";
import type { PodRow } from "../store/pod-row.ts";
import { diskTrouble } from "./disk-trouble.ts";
import { configureNow, resumed } from "../guest/follow-agent.ts";
import { keepTrying } from "./keep-trying.ts";
import type { LivePod } from "./live-pod.ts";
import { guard, type Supervision } from "./supervision.ts";

/**
 * Longest that the hypervisor may take to stop or to resume a machine's processors, milliseconds.
 */
const limitMs = 10_000;
/** Between two looks at the state of a machine that other programs keep stopping, milliseconds. */
const lookEveryMs = 1000;

/**
 * Reason of a resumed pod until its guest is configured: should podnetd end first, the next one
 * reads it.
 */
export const clockBehind = "its guest's clock is behind";
const stopped = "something else than podnetd stopped its machine";
const continued = "something else than podnetd let its machine run";

/**
 * Stops the processors of a running pod. The guest's time stops with them, so that its silent agent
 * meets no deadline. The row is written after the machine has stopped: after a crash in between,
 * the next podnetd finds the machine paused.
 */
export async function pausePod(live: LivePod, watch: Supervision): Promise<void> {
  const vm = machineOf(live);
  stand(live);
  try {
    await vm.pause(limited(limitMs, live.ended.signal));
    watch.records.state(live.plan, "paused");
  } catch (thrown) {
    // The machine resumes. If that fails too, `followRunState` asks for its state at its next
    // event.
    await vm.resume(limited(limitMs, live.ended.signal)).then(
      () => live.time.go(),
      () => {},
    );
    throw thrown;
  }
}

/** Resumes the processors of a paused pod, and sets its guest's clock, which was stopped. */
export async function resumePod(live: LivePod, watch: Supervision): Promise<void> {
  const vm = machineOf(live);
  await vm.resume(limited(limitMs, live.ended.signal));
  live.time.go();
  try {
    watch.records.state(live.plan, "running", { reason: clockBehind });
  } catch (thrown) {
    await vm.pause(limited(limitMs, live.ended.signal)).then(
      () => stand(live),
      () => {},
    );
    throw thrown;
  }
  // Without a connection to the agent, it is reached now, and configured then.
  await configureNow(live, watch, resumed, live.ended.signal);
}

/**
 * Follows the machine when another monitor stops or resumes it, or QEMU stops it at a disk error.
 */
export function followRunState(live: LivePod, watch: Supervision): void {
  const { vm } = live;
  if (vm === undefined) return;
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, live.ended.signal]);
  const { clock } = watch.host;
  let lookedAt = -lookEveryMs;
  let queued = false;
  const unsubscribe = vm.onEvent((event) => {
    if (event.kind !== "run-state") return;
    // At once, without the pod's turn: a deadline of its guest may be about to pass.
    if (event.runs === false) stand(live);
    if (event.runs === true) live.time.go();
    if (queued) {
      watch.dropped?.("machine_events");
      return;
    }
    queued = true;
    guard(live, watch, async () => {
      const waitMs = lookedAt + lookEveryMs - clock.monotonic();
      if (waitMs > 0) await delay(waitMs, undefined, { signal }).catch(() => {});
      await watch.locks.run(live.plan.podId, async () => {
        queued = false;
        lookedAt = clock.monotonic();
        if (!signal.aborted) await recordRunState(live, vm, watch, signal);
      });
    });
  });
  live.subscriptions.add(() => {
    unsubscribe();
    stop.abort();
  });
}

async function recordRunState(
  live: LivePod,
  vm: RunningVm,
  watch: Supervision,
  signal: AbortSignal,
): Promise<void> {
  const state = await vm.runState(limited(limitMs, signal));
  const was = watch.records.get(live.plan.podId)?.state;
  if (was !== "running" && was !== "paused") return;
  noteRunStateOrLater(live, state, watch);
  if (was === "paused" && state.runs) await configureNow(live, watch, resumed, signal);
}

/** Writes the machine's state into the row of a running or paused pod. */
function noteRunState(
  live: LivePod,
  { runs, status }: RunState,
  was: PodRow["state"],
  { records, log }: Supervision,
): void {
  if (runs) live.time.go();
  else stand(live);
  if (runs === (was === "running")) return;
  const reason = runs ? continued : stoppedBy(status, live);
  log.warn({ pod_id: live.plan.podId }, reason);
  if (!runs) records.state(live.plan, "paused", { reason });
  else {
    records.state(live.plan, "running", { reason: clockBehind });
    records.note(live.plan, reason);
  }
}

/**
 * QEMU stops a machine when a write finds no room: the guest would take an error for a broken disk.
 */
const stoppedBy = (status: string, { plan }: LivePod): string =>
  status === "io-error" ? diskTrouble(plan) : `${stopped} (${status})`;

/**
 * Runs `noteRunState`, and again later when the store has no room: the pod is followed in any case.
 */
export function noteRunStateOrLater(live: LivePod, state: RunState, watch: Supervision): void {
  const { records, over } = watch;
  const row = records.get(live.plan.podId);
  if (row?.state !== "running" && row?.state !== "paused") return;
  try {
    noteRunState(live, state, row.state, watch);
  } catch (thrown) {
    if (!isPodnetError(thrown, "STATE_UNWRITABLE")) throw thrown;
    keepTrying(row, "what its machine does cannot be written down", thrown, watch, async (now) => {
      const { vm } = live;
      if (vm !== undefined && !live.ended.signal.aborted)
        noteRunState(live, await vm.runState(limited(limitMs, over)), now.state, watch);
    });
  }
}

function stand(live: LivePod): void {
  live.time.stop();
  live.stood = true;
}

function machineOf({ vm }: LivePod): RunningVm {
  if (vm === undefined) throw new PodnetError("INTERNAL", "The machine has not been started");
  return vm;
}
