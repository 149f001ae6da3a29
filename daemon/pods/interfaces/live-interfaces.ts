import { limited } from "../../../core/aborting.ts";
import { assertNever } from "../../../core/brand.ts";
import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { InterfaceChange } from "../../../api/validate/interface-change.ts";
import { interfacesOf, withInterfaces } from "../store/pod-interfaces.ts";
import type { PodContents, PodRow } from "../store/pod-row.ts";
import { openTapOf } from "../lifecycle/actions.ts";
import type { Host } from "../lifecycle/host.ts";
import { guestOf } from "../guest/guest-of.ts";
import { isOfLoopback } from "./kinds/loopback.ts";
import { answerOtherwise } from "./answer-guest.ts";
import { keepTrying } from "../lifecycle/keep-trying.ts";
import { type LivePod, requireGuest } from "../lifecycle/live-pod.ts";
import { finishLeaving, takeBack, configureAgain } from "./live-leaving.ts";
import { leaving, withoutLeft } from "../plan/plan-change.ts";
import { ensureRulesSince } from "../lifecycle/publish.ts";
import { portAlone, portsOf } from "./pod-ports.ts";
import { asksAlike } from "../guest/guest-config.ts";
import {
  inPlaceOf,
  type InterfacePlan,
  type PodPlan,
  staying,
  withNic,
} from "../store/pod-plan.ts";
import { runFlow, type StepRun } from "../lifecycle/run-steps.ts";
import { type Flow, plugSteps } from "../plan/steps.ts";
import type { Supervision } from "../lifecycle/supervision.ts";

/** Longest a change may take in all, milliseconds; a NIC has 15 s to be found by its guest. */
const changeMs = 45_000;

/**
 * Carries out a planned change of a running pod: first in its rows, then on host and guest. An
 * addition that fails is removed, and an update that fails is undone. A removed interface is gone
 * from here on, even when its guest keeps the NIC for a while. The caller has the pod's turn.
 */
export async function changeInterfaces(
  live: LivePod,
  row: PodRow,
  change: InterfaceChange,
  next: PodContents,
  watch: Supervision,
): Promise<void> {
  requireAgent(live, row, change);
  const before = new Set(row.plan.interfaces.map(({ position }) => position));
  switch (change.kind) {
    case "add": {
      const made = next.plan.interfaces.find(({ position }) => !before.has(position));
      if (made === undefined) throw new RangeError("Nothing is added");
      return add(live, row, made, next, watch);
    }
    case "set":
      return update(live, row, change.name, next, watch);
    case "remove":
      watch.records.replan(live, { ...next, text: `interface ${change.name} is being removed` });
      live.needsReconfiguration ||= guestOf(next.plan).hasAgent && !asksAlike(row, next);
      answerOtherwise(live, row, watch);
      await sourcesGone(live, row, watch);
      return finishLeaving(live, watch, change.name);
    default:
      return assertNever(change);
  }
}

/**
 * Stops traffic from addresses of a removed interface. The removal is written down by then, so a
 * failure is retried.
 */
async function sourcesGone(live: LivePod, row: PodRow, watch: Supervision): Promise<void> {
  const complete = async (): Promise<void> => {
    await ensureRulesSince(live, row.plan, watch);
    await fixEjected(live, watch.host);
  };
  await complete().catch((thrown: unknown) => {
    keepTrying(row, "addresses it had on lo are still let through", thrown, watch, complete);
  });
}

/** A NIC that the guest has ejected keeps its rules, which name the pod's other addresses, too. */
async function fixEjected(live: LivePod, { network, networks }: Host): Promise<void> {
  const fragment = portsOf(live.plan, networks.list());
  const ejected = withNic(staying(live.plan.interfaces)).filter(
    ({ position }) => !live.plugged.has(position),
  );
  const ports = fragment.ports.filter(({ tap }) => ejected.some(({ nic }) => nic.tap === tap));
  if (ports.length === 0) return;
  const inspections = await network.inspectRules(
    () => [{ ...fragment, ports }],
    () => true,
    AbortSignal.timeout(changeMs),
  );
  for (const { error } of inspections.values()) if (error !== undefined) throw error;
}

function requireAgent(live: LivePod, { name, plan }: PodRow, change: InterfaceChange): void {
  if (guestOf(plan).hasAgent) requireGuest(live);
  else refuseWithoutAgent(name, change);
}

/** Refuses changes that the guest would have to be notified of. */
function refuseWithoutAgent(name: string, change: InterfaceChange): void {
  const loopback = change.kind === "add" && isOfLoopback(change.spec);
  if (change.kind !== "set" && !loopback) return;
  throw new PodnetError(
    "UNSUPPORTED",
    `The guest of pod "${name}" has no agent to notify ${loopback ? "of addresses of lo" : "of the change"}`,
    { hint: "Its interfaces can be added and removed" },
  );
}

async function add(
  live: LivePod,
  row: PodRow,
  made: InterfacePlan,
  next: PodContents,
  watch: Supervision,
): Promise<void> {
  const { records, host } = watch;
  const { guestName } = made;
  records.replan(live, {
    ...next,
    text: `interface ${guestName} is being added`,
    reverting: true,
  });
  using stop = changeStop(live);
  try {
    for (const nic of withNic([made])) {
      live.taps.set(made.position, openTapOf(nic, live.plan, host));
      await host.network.apply(portAlone(live.plan, made, host.networks.list()), stop.signal);
    }
    await ensureRulesSince(live, row.plan, watch);
    await runFlow(addFlow(made, live.plan), stepRun(live, watch), stop.signal);
    records.confirmed(live, `interface ${guestName} added`);
    answerOtherwise(live, row, watch);
  } catch (thrown) {
    const error = toPodnetError(thrown);
    await undoAdd(live, made, `interface ${guestName} not added: ${error.message}`, watch).catch(
      (left: unknown) => {
        watch.log.error({ pod_id: row.id, err: left }, "Cannot undo what was added");
        keepTrying(row, "an interface that was not added is left", left, watch, () =>
          undoAdd(live, made, `interface ${guestName} not added`, watch),
        );
      },
    );
    throw error;
  }
}

/**
 * The NIC is plugged first: else the guest would wait for it in vain, and still do so when the
 * addition is undone.
 */
const addFlow = (made: InterfacePlan, plan: PodPlan): Flow => ({
  kind: "sequence",
  flows: [...(made.nic === undefined ? [] : plugSteps(made, plan)), configureFlow(plan)],
});

function configureFlow(plan: PodPlan): Flow {
  const { configure, verify } = guestOf(plan).steps;
  return { kind: "sequence", flows: [...configure, ...verify] };
}

/** Undoes the addition of an interface, and gives the pod its earlier contents. */
async function undoAdd(
  live: LivePod,
  made: InterfacePlan,
  text: string,
  watch: Supervision,
): Promise<void> {
  const { records } = watch;
  const row = records.get(live.plan.podId);
  if (row?.before === undefined) return;
  const { before } = row;
  const { plan, spec } = leaving(row, made);
  // A policy that is written meanwhile would count its port as the pod's.
  const begun = `interface ${made.guestName} is being removed again`;
  records.replan(live, { plan, spec, text: begun, reverting: true });
  const { dns = plan.dns } = before.plan;
  const without = { plan: dns === undefined ? plan : { ...plan, dns }, spec };
  const gone = (await takeBack(live, made, watch.host)) === "gone";
  records.replan(live, { ...(gone ? withoutLeft(without, made.position) : without), text });
  // Unplugging a NIC removes its addresses and routes in the guest; a change of `lo` or of name
  // servers has to be sent to it.
  if (made.nic === undefined || !asksAlike(row, before)) await configureAgain(live, text, watch);
  // (Where that fails, drift finds it: the fragment says that there are none.)
  await ensureRulesSince(live, row.plan, watch);
}

async function update(
  live: LivePod,
  row: PodRow,
  name: string,
  next: PodContents,
  watch: Supervision,
): Promise<void> {
  const { records } = watch;
  records.replan(live, { ...next, text: `interface ${name} is being changed`, reverting: true });
  using stop = changeStop(live);
  try {
    await ensureRulesSince(live, row.plan, watch);
    await runFlow(configureFlow(live.plan), stepRun(live, watch), stop.signal);
    await forgetGivenUp(row.plan, next.plan, watch);
    records.confirmed(live, `interface ${name} changed`);
  } catch (thrown) {
    const error = toPodnetError(thrown);
    const undo = async (): Promise<void> => {
      const text = `interface ${name} not changed: ${error.message}`;
      records.replan(live, { plan: row.plan, spec: row.spec, text });
      await ensureRulesSince(live, next.plan, watch);
      await configureAgain(live, text, watch);
      await forgetGivenUp(next.plan, row.plan, watch);
    };
    await undo().catch((left: unknown) => {
      watch.log.error({ pod_id: row.id, err: left }, "Cannot undo what was changed");
      keepTrying(row, "a change is not undone", left, watch, undo);
    });
    throw error;
  }
}

/**
 * After a start: finishes a change that the podnetd before had begun. An addition or an update is
 * undone, as it was not reported as done; a removal is completed.
 */
export async function finishChanges(live: LivePod, watch: Supervision): Promise<void> {
  await finish(live, watch).catch((thrown: unknown) => {
    const row = watch.records.get(live.plan.podId);
    watch.log.error({ pod_id: live.plan.podId, err: thrown }, "Cannot finish a change");
    if (row !== undefined)
      keepTrying(row, "a change that was cut short is not undone", thrown, watch, () =>
        finish(live, watch),
      );
  });
}

async function finish(live: LivePod, watch: Supervision): Promise<void> {
  const { records } = watch;
  const row = records.get(live.plan.podId);
  if (row === undefined) return;
  const { before } = row;
  if (before !== undefined) {
    const known = new Set(before.plan.interfaces.map(({ position }) => position));
    const added = interfacesOf(row).filter(({ plan }) => !known.has(plan.position));
    if (added.length > 0) {
      // A policy that is written meanwhile would count their ports as the pod's.
      const without = added.map(({ plan }) => plan).reduce<PodContents>(leaving, row);
      const text = "a change that was cut short is being undone";
      records.replan(live, { ...without, text, reverting: true });
    }
    let now: PodContents = { ...before, plan: inPlaceOf(before.plan, row.plan) };
    for (const { request, plan } of added) {
      if ((await takeBack(live, plan, watch.host)) === "gone") continue;
      const still = { request, plan: { ...plan, leaving: true as const } };
      now = withInterfaces(now, [...interfacesOf(now), still]);
    }
    records.replan(live, { ...now, text: "a change that was cut short is undone" });
    await configureAgain(live, "a change was cut short", watch);
    await forgetGivenUp(row.plan, before.plan, watch);
    await ensureRulesSince(live, row.plan, watch);
  }
  await finishLeaving(live, watch);
}

/**
 * The host would send packets to the address's former port until it has asked for its next holder.
 */
async function forgetGivenUp(had: PodPlan, has: PodPlan, { host }: Supervision): Promise<void> {
  const kept = new Set(portsOf(has, []).ports.flatMap(({ guestAddresses }) => guestAddresses));
  const givenUp = portsOf(had, []).ports.map((port) => ({
    ...port,
    guestAddresses: port.guestAddresses.filter((address) => !kept.has(address)),
  }));
  await host.network.remove({ kind: "neighbours", of: givenUp }, AbortSignal.timeout(changeMs));
}

/** Ends a change in time, with its machine, or when its pod is let go of. */
export function changeStop(live: LivePod): Disposable & { readonly signal: AbortSignal } {
  const letGo = new AbortController();
  const end = (): void =>
    letGo.abort(new PodnetError("CANCELLED", "The pod is let go of", { hint: "Try again" }));
  live.subscriptions.add(end);
  return {
    signal: limited(changeMs, AbortSignal.any([letGo.signal, live.ended.signal])),
    [Symbol.dispose]: () => void live.subscriptions.delete(end),
  };
}

const stepRun = (live: LivePod, { host, log }: Supervision): StepRun => {
  const begun = host.clock.monotonic();
  return {
    live,
    host,
    progress: {
      started: () => {},
      finished: ({ step, durationMs, detail }) =>
        log.debug({ pod_id: live.plan.podId, step, duration_ms: durationMs }, detail),
    },
    elapsed: () => host.clock.monotonic() - begun,
  };
};
