import { toPodnetError } from "../../../core/errors.ts";
import type { Host } from "../lifecycle/host.ts";
import { answerNoMore } from "./answer-guest.ts";
import { portAlone } from "./pod-ports.ts";
import { configureNow } from "../guest/follow-agent.ts";
import { keepTrying } from "../lifecycle/keep-trying.ts";
import type { LivePod } from "../lifecycle/live-pod.ts";
import { withoutLeft } from "../plan/plan-change.ts";
import { type InterfacePlan, withNic } from "../store/pod-plan.ts";
import type { Supervision } from "../lifecycle/supervision.ts";

/**
 * Longest that unplugging a NIC may take, milliseconds; a guest that keeps its NIC takes three
 * seconds.
 */
const takeBackMs = 20_000;

/**
 * Removes an interface from the host and unplugs its NIC; its traffic ends first. `pending` when
 * the guest has not released its NIC, whose slot stays taken. Absent is success; can be repeated.
 */
export async function takeBack(
  live: LivePod,
  each: InterfacePlan,
  host: Host,
): Promise<"gone" | "pending"> {
  const { nic, position } = each;
  const { vm } = live;
  if (nic === undefined) return "gone";
  const signal = AbortSignal.timeout(takeBackMs);
  // What happens to the NIC from here on is intended.
  live.plugged.delete(position);
  answerNoMore(live, position);
  if (each.bridge !== undefined)
    await host.network.remove({ kind: "ports", pod: live.plan.podId, tap: nic.tap }, signal);
  const left = vm === undefined ? "unplugged" : await vm.unplug(nic, signal);
  const tap = live.taps.get(position);
  live.taps.delete(position);
  await tap?.close();
  if (left === "pending") return "pending";
  if (each.bridge !== undefined) {
    // What the host may still have of an unplugged NIC: entries for its addresses.
    const left = portAlone(live.plan, each);
    await host.network.remove(left, signal);
    await host.network.remove({ kind: "connections", of: [left] }, signal);
  }
  return "gone";
}

/**
 * Completes the removal of one interface, or of all that are `leaving`; an interface whose guest
 * keeps the NIC stays `leaving`.
 */
export async function finishLeaving(
  live: LivePod,
  watch: Supervision,
  name?: string,
): Promise<void> {
  const ending = live.plan.interfaces.filter(
    ({ leaving, guestName }) => leaving === true && (name ?? guestName) === guestName,
  );
  for (const each of ending) {
    try {
      await finishOne(live, each, watch);
    } catch (thrown) {
      const row = watch.records.get(live.plan.podId);
      const error = toPodnetError(thrown);
      watch.log.error({ pod_id: live.plan.podId, err: error }, "Cannot remove an interface");
      if (row !== undefined)
        keepTrying(row, `interface ${each.guestName} is not removed yet`, error, watch, () =>
          finishOne(live, each, watch),
        );
      throw error.with({ hint: "podnetd goes on trying: see podnet interface list" });
    }
  }
}

async function finishOne(live: LivePod, each: InterfacePlan, watch: Supervision): Promise<void> {
  const { records } = watch;
  const pending = (await takeBack(live, each, watch.host)) === "pending";
  if (pending) records.note(live.plan, `the guest has not let go of ${each.guestName} yet`);
  else dropLeft(live, each, watch);
  // Unplugging a NIC removes its addresses and routes in the guest; a change of `lo` or of name
  // servers has to be sent to it.
  if (each.nic === undefined)
    await configureAgain(live, `${each.guestName} has no more addresses`, watch);
  else if (live.needsReconfiguration)
    await configureAgain(live, `${each.guestName} is removed`, watch);
}

/** Sends the guest its configuration again, now or as soon as its agent is there. */
export async function configureAgain(
  live: LivePod,
  why: string,
  watch: Supervision,
): Promise<void> {
  live.needsReconfiguration = true;
  await configureNow(live, watch, why, live.ended.signal);
}

/** The pod without an unplugged interface: its addresses are quarantined, its slot is free. */
function dropLeft(live: LivePod, each: InterfacePlan, { records }: Pick<Supervision, "records">) {
  const row = records.get(live.plan.podId);
  const still = row?.plan.interfaces.find(({ position }) => position === each.position);
  if (row === undefined || still?.leaving !== true) return;
  live.ejected.delete(each.position);
  const next = withoutLeft(row, each.position);
  records.replan(live, { ...next, text: `interface ${each.guestName} removed` });
}

/** A guest has released a NIC: completes the removal of its interface, if that is pending. */
export async function leftAtLast(
  live: LivePod,
  nicId: string,
  watch: Pick<Supervision, "records" | "locks">,
): Promise<void> {
  const isLeaving = (each: InterfacePlan): boolean =>
    each.leaving === true && each.nic?.nicId === nicId;
  await watch.locks.run(live.plan.podId, async () => {
    const left = withNic(live.plan.interfaces).find(isLeaving);
    if (left !== undefined) dropLeft(live, left, watch);
  });
}
