import { setTimeout as delay } from "node:timers/promises";
import { limited } from "../../../core/aborting.ts";
import { isPodnetError, PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { Guest } from "../../../guest-init/channel/guest.ts";
import { guestMessage } from "../lifecycle/actions.ts";
import { compareGuest } from "./compare-guest.ts";
import type { LivePod } from "../lifecycle/live-pod.ts";
import { machineKindOf } from "../machine/machine-of.ts";
import { followAgain } from "../process/follow-end.ts";
import { guestOf } from "./guest-of.ts";
import { writeFilesAnew } from "./guest-files.ts";
import { mountShares, reportEndedShares } from "./guest-shares.ts";
import { followPace } from "./guest-pace.ts";
import { guard, type Supervision } from "../lifecycle/supervision.ts";

/** Between attempts to reach a lost agent, milliseconds: doubled from the first to the longest. */
const pauses = { first: 250, longest: 30_000 } as const;
/** The beginning of the pod's reason meanwhile. */
const lost = "the agent is lost";
/** Longest that writing a pod's files again may take, milliseconds. */
const filesMs = 10_000;
/** Between two configurations of an agent that keeps restarting, milliseconds. */
const configureEveryMs = 1000;
/**
 * A channel that held this long, milliseconds, is reached again soon after it is lost; one that
 * breaks at once is not.
 */
const steadyMs = 60_000;

/**
 * Stays in touch with the agent of a running machine. An agent that restarts is configured again. A
 * lost channel, after a breach of protocol say, is opened again for as long as the machine runs and
 * the pod is followed. The pod runs on meanwhile, with the loss as its reason. Without a
 * `live.guest` the agent is reached first.
 */
export function followAgent(live: LivePod, watch: Supervision): void {
  if (!guestOf(live.plan).hasAgent) return;
  const stop = new AbortController();
  live.subscriptions.add(() => stop.abort());
  const signal = AbortSignal.any([stop.signal, live.ended.signal]);
  guard(live, watch, () => follow(live, watch, signal));
}

async function follow(live: LivePod, watch: Supervision, signal: AbortSignal): Promise<void> {
  const { clock } = watch.host;
  if (live.guest === undefined) await untilMayCome(watch, signal);
  if (signal.aborted) return;
  let pauseMs = 0;
  let ask = true;
  for (;;) {
    const begun = clock.monotonic();
    const reason = await accompany(live, watch, ask, signal);
    if (isPodnetError(reason, "AGENT_PROTOCOL") && !signal.aborted)
      guard(live, watch, () => cutOff(live, watch, reason));
    ask = mayAsk(live, reason);
    pauseMs = nextPause(pauseMs, clock.monotonic() - begun);
    await delay(pauseMs, undefined, { signal }).catch(() => {});
    // The machine's end closes the channel too, maybe a moment before podnetd knows of it, and is
    // reported separately.
    if (signal.aborted) return;
    guard(live, watch, () => watch.records.degraded(live.plan, lost, reason));
  }
}

/** Resolves when agents may be reached, or when the signal aborts. */
async function untilMayCome({ agentsMayCome }: Supervision, signal: AbortSignal): Promise<void> {
  if (agentsMayCome === undefined || signal.aborted) return;
  const { promise: aborted, resolve } = Promise.withResolvers<void>();
  const onAbort = (): void => resolve();
  signal.addEventListener("abort", onAbort, { once: true });
  await Promise.race([agentsMayCome, aborted]);
  signal.removeEventListener("abort", onAbort);
}

/**
 * Shows, logs and counts a guest that broke the protocol; the pause before it is reached again
 * bounds how often that is.
 */
function cutOff({ plan }: LivePod, watch: Supervision, reason: PodnetError): void {
  watch.dropped?.("guest_cut_off");
  watch.records.degraded(plan, lost, reason);
  watch.log.warn(
    { pod_id: plan.podId, err: reason },
    "Guest disconnected: it violated the protocol",
  );
}

/**
 * How long to wait after a channel that held for `heldMs`, when the wait before it was `pauseMs`.
 */
export function nextPause(pauseMs: number, heldMs: number): number {
  if (heldMs >= steadyMs) return pauses.first;
  return Math.min(Math.max(2 * pauseMs, pauses.first), pauses.longest);
}

/**
 * Whether to ask who is there, or to wait for a READY. A plain hyperstart that did not answer may
 * be waiting for the rest of a command of an earlier podnetd: more of it could be taken for a
 * header, and a wrong one kills the guest.
 */
const mayAsk = ({ identity }: LivePod, reason: PodnetError): boolean =>
  identity?.extension !== undefined || !isPodnetError(reason, "AGENT_TIMEOUT");

/** Reaches the agent unless it is connected, and stays until it is lost; answers why. */
async function accompany(
  live: LivePod,
  watch: Supervision,
  ask: boolean,
  signal: AbortSignal,
): Promise<PodnetError> {
  try {
    const guest = live.guest ?? (await reach(live, watch, ask, signal));
    const reason = await untilLost(guest, live, watch, signal);
    if (!signal.aborted) live.guest = undefined;
    return reason;
  } catch (thrown) {
    return toPodnetError(thrown, "AGENT_DISCONNECTED");
  }
}

/** Finds out who answers in the guest now. */
async function reach(
  live: LivePod,
  watch: Supervision,
  ask: boolean,
  signal: AbortSignal,
): Promise<Guest> {
  const { host, records } = watch;
  const { vm, plan } = live;
  // Requests to a paused guest would collect in its channel, and it would read them with all later
  // ones.
  await live.time.going(signal);
  if (vm === undefined) throw new PodnetError("INTERNAL", "The machine has not been started");
  const guest = host.openGuest({
    ...machineKindOf(plan.vm).channels(vm),
    reattach: ask,
    // A pod is followed once it runs, and it runs once its guest has been configured.
    configuredBefore: true,
    time: live.time,
    ...guestOf(plan).channel,
  });
  // Callers that need the agent meanwhile wait for it too.
  live.guest = guest;
  try {
    using limit = live.time.limited(host.timeouts.readyMs, signal);
    live.identity = await guest.ready(limit.signal);
  } catch (thrown) {
    // When podnetd has let go of the pod, it closes the guest, maybe after a request to power off.
    if (!signal.aborted) {
      live.guest = undefined;
      await guest.close();
    }
    throw thrown;
  }
  records.recovered(plan, "the agent is back");
  reportEndedShares(live, watch);
  const { epoch } = live.identity;
  // An agent that restarted has lost its configuration. A plain hyperstart does not show whether it
  // restarted, but it is sent only what it lacks.
  const anew = epoch === undefined || epoch !== records.get(plan.podId)?.guest?.epoch;
  // What an earlier podnetd wrote is there.
  if (!anew) live.filesEpoch = epoch;
  if (anew || live.stood || live.needsReconfiguration) {
    const undone = live.needsReconfiguration ? "a change was undone" : resumed;
    const why = anew ? "the agent may have started anew meanwhile" : undone;
    guard(live, watch, () => configureAgain(live, watch, why, signal));
  }
  guard(live, watch, () => followAgain(live, watch, guest, signal));
  return guest;
}

/** Resolves with the reason when the channel is lost, or when the pod is let go of. */
function untilLost(
  guest: Guest,
  live: LivePod,
  watch: Supervision,
  signal: AbortSignal,
): Promise<PodnetError> {
  return new Promise((resolve) => {
    const { clock } = watch.host;
    let queued = false;
    let configuredAt = -configureEveryMs;
    const over = (reason: PodnetError): void => {
      for (const end of subscriptions) end();
      resolve(reason);
    };
    const onAbort = (): void =>
      over(new PodnetError("CANCELLED", "podnetd stopped managing the pod"));
    const subscriptions = [
      () => signal.removeEventListener("abort", onAbort),
      guest.onReady((identity) => {
        live.identity = identity;
        // However often a guest restarts, at most one configuration waits for its turn.
        if (queued) {
          watch.dropped?.("agent_restarts");
          return;
        }
        queued = true;
        const begun = (): void => {
          queued = false;
        };
        const why = "the agent started anew";
        const waitMs = configuredAt + configureEveryMs - clock.monotonic();
        guard(live, watch, async () => {
          if (waitMs > 0) await delay(waitMs, undefined, { signal }).catch(() => {});
          configuredAt = clock.monotonic();
          await configureAgain(live, watch, why, signal, begun);
          await followAgain(live, watch, guest, signal);
        });
      }),
    ];
    subscriptions.push(followPace(guest, live, watch));
    subscriptions.push(guest.onClose((reason) => over(toPodnetError(reason))));
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
}

/**
 * Sends a guest its network again until the pod is let go of. `begun` is called when this
 * configuration has its turn.
 */
async function configureAgain(
  live: LivePod,
  watch: Supervision,
  why: string,
  signal: AbortSignal,
  begun: () => void = () => {},
): Promise<void> {
  await watch.locks.run(live.plan.podId, async () => {
    begun();
    await configureNow(live, watch, why, signal);
  });
}

/**
 * Sends the guest its network again in the pod's turn; callers do not wait for it. A guest whose
 * agent is away is configured when the agent is back.
 */
export function configureSoon(live: LivePod, watch: Supervision, why: string): void {
  live.needsReconfiguration = true;
  const stop = new AbortController();
  const end = (): void => stop.abort();
  live.subscriptions.add(end);
  const signal = AbortSignal.any([stop.signal, live.ended.signal]);
  guard(live, watch, async () => {
    try {
      await watch.locks.run(live.plan.podId, async () => {
        // Several changes in a row are reported once.
        if (live.needsReconfiguration && !signal.aborted)
          await configureNow(live, watch, why, signal);
      });
    } finally {
      live.subscriptions.delete(end);
    }
  });
}

/** Why the guest is configured again after its machine was paused. */
export const resumed = "its machine was resumed";

/**
 * Configures the guest again; the caller has the pod's turn. Never throws: a failure makes the pod
 * degraded.
 */
export async function configureNow(
  live: LivePod,
  watch: Supervision,
  why: string,
  signal: AbortSignal,
): Promise<void> {
  const { guest, plan } = live;
  if (guest === undefined || watch.records.get(plan.podId)?.state !== "running") return;
  try {
    await mountShares(live, limited(filesMs, signal));
    await writeFilesAnew(live, limited(filesMs, signal));
    const message = guestMessage(live, watch.host);
    live.observed = await guest.configure(message, limited(message.waitMs + 5000, signal));
    live.stood = false;
    live.needsReconfiguration = false;
    compareGuest(message, live.observed);
    watch.records.configured(live, `configured again: ${why}`);
    reportEndedShares(live, watch);
  } catch (thrown) {
    if (signal.aborted) return;
    const error = toPodnetError(thrown, "AGENT_TIMEOUT");
    watch.records.degraded(plan, "not configured again", error);
    watch.log.warn({ pod_id: plan.podId, err: error }, "Failed to reconfigure the guest");
  }
}
