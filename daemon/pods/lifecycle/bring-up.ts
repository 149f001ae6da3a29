import { type PodnetError, toPodnetError } from "../../../core/errors.ts";
import { timer } from "./deadlines.ts";
import type { Host } from "./host.ts";
import { consoleTailText } from "../guest/console-tail.ts";
import { type LivePod, unsubscribe } from "./live-pod.ts";
import { machineKindOf } from "../machine/machine-of.ts";
import { withCni } from "../store/pod-plan.ts";
import { attach, type Progress, runFlow } from "./run-steps.ts";
import type { Span } from "../../events/span.ts";
import { createSteps } from "../plan/steps.ts";
import { undoPod } from "./undo.ts";

/** The outcome of bringing a pod up. */
export type BringUp =
  | { readonly kind: "up"; readonly spans: readonly Span[] }
  /** All was undone. */
  | { readonly kind: "undone"; readonly error: PodnetError; readonly spans: readonly Span[] }
  /** Something could not be undone; the error says what. */
  | { readonly kind: "stuck"; readonly error: PodnetError; readonly spans: readonly Span[] };

export interface BringUpOptions {
  readonly progress: Progress;
  /** The pod has never run: its disks are new, and are removed when it does not start. */
  readonly fresh: boolean;
  /** Milliseconds since the request arrived. */
  elapsed(): number;
  /** Called before what a failed step leaves is undone. */
  undoing(): void;
  /** Makes it durable that the pod is to run: before anything that outlasts a loss of power. */
  begin(): Promise<void>;
  /** Waits until one more machine may start, in a slot that is held until disposed. */
  slot(signal: AbortSignal): Promise<Disposable>;
  /** Makes it durable that the pod runs: the last step, undone like any other when it fails. */
  commit(spans: readonly Span[]): Promise<void>;
}

/**
 * So long a start counts among those that go on at a time, milliseconds: a guest may never answer.
 */
const longStartMs = 10_000;

/** Whether a machine has to start: none has waited in the pool, and it is not a foreign one. */
const startsMachine = ({ vm, plan }: LivePod): boolean =>
  vm === undefined && machineKindOf(plan.vm).isOwn;

/**
 * Whether all that is made for the pod ends with the host: a machine that has waited in the pool,
 * and taps and rules. What disks, plugins and programs leave would be without a row after a loss of
 * power.
 */
const endsWithHost = ({ vm, plan }: LivePod): boolean =>
  vm !== undefined &&
  plan.vm.disks.length + (plan.disks ?? []).length === 0 &&
  plan.process === undefined &&
  withCni(plan.interfaces).length === 0;

/** Runs the steps of a pod whose row is written, and undoes them when one fails. Never throws. */
export async function bringUp(
  live: LivePod,
  host: Host,
  { progress, fresh, elapsed, undoing, begin, slot, commit }: BringUpOptions,
  signal: AbortSignal,
): Promise<BringUp> {
  const spans: Span[] = [];
  const noted: Progress = {
    started: (step, startMs) => progress.started(step, startMs),
    finished: (span) => {
      spans.push(span);
      progress.finished(span);
    },
  };
  const ordered = (): readonly Span[] => spans.toSorted((a, b) => a.startMs - b.startMs);
  const unsafe = new AbortController();
  try {
    const begun = begin();
    begun.catch((thrown: unknown) => unsafe.abort(thrown));
    if (!endsWithHost(live)) await begun;
    const stop = AbortSignal.any([signal, live.ended.signal, unsafe.signal]);
    {
      using held = startsMachine(live) ? await slot(stop) : undefined;
      using _limit = timer(longStartMs, () => held?.[Symbol.dispose]());
      await runFlow(createSteps(live, { fresh }), { live, host, progress: noted, elapsed }, stop);
    }
    await begun;
    await commit(ordered());
    return { kind: "up", spans: ordered() };
  } catch (thrown) {
    unsubscribe(live);
    undoing();
    const cause: unknown = unsafe.signal.aborted ? unsafe.signal.reason : thrown;
    const error = withConsole(toPodnetError(cause), live);
    const failures = await undoPod(live, host, {
      graceful: false,
      ...(fresh ? { dropDisks: "anyway" } : {}),
    });
    if (failures.length > 0)
      return { kind: "stuck", error: attach(error, failures), spans: ordered() };
    return { kind: "undone", error, spans: ordered() };
  }
}

/** An error about a guest, with the console tail and a hint where to look. */
function withConsole(error: PodnetError, { vm, plan }: LivePod): PodnetError {
  if (vm === undefined || !/^(?:QEMU_EXITED|BOOT_FAILED|AGENT_)/.test(error.code)) return error;
  return error.with({
    hint: "See that the image runs podnet's agent or a hyperstart, and what it says on its console",
    // Present also when it is empty, as the hint refers to it. podnet has no console of attached
    // machines.
    details: machineKindOf(plan.vm).hasConsole
      ? { console: consoleTailText(vm.consoleTail()) }
      : {},
  });
}
