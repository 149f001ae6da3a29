import { type PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { Host } from "./host.ts";
import { lastWords } from "../guest/last-words.ts";
import { type LivePod, unsubscribe } from "./live-pod.ts";
import { machineKindOf } from "../machine/machine-of.ts";
import { attach, type Progress, runFlow } from "./run-steps.ts";
import type { Span } from "../../events/span.ts";
import { createSteps } from "../plan/steps.ts";
import { undoPod } from "./undo.ts";

/** How bringing a pod up ended. */
export type BringUp =
  | { readonly kind: "up"; readonly spans: readonly Span[] }
  /** All was undone. */
  | { readonly kind: "undone"; readonly error: PodnetError; readonly spans: readonly Span[] }
  /** Something is left; the error carries what could not be undone. */
  | { readonly kind: "stuck"; readonly error: PodnetError; readonly spans: readonly Span[] };

export interface BringUpOptions {
  readonly progress: Progress;
  /** It has never run: its disks are begun, and go when it does not start. */
  readonly fresh: boolean;
  /** Milliseconds since the request arrived. */
  elapsed(): number;
  /** Makes durable that the pod runs: the last step, undone like any other when it fails. */
  commit(spans: readonly Span[]): void;
}

/** Runs the steps of a pod whose row is written, and undoes them when one fails. Never throws. */
export async function bringUp(
  live: LivePod,
  host: Host,
  { progress, fresh, elapsed, commit }: BringUpOptions,
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
  try {
    const stop = AbortSignal.any([signal, live.ended.signal]);
    await runFlow(createSteps(live, { fresh }), { live, host, progress: noted, elapsed }, stop);
    commit(ordered());
    return { kind: "up", spans: ordered() };
  } catch (thrown) {
    unsubscribe(live);
    const error = withConsole(toPodnetError(thrown), live);
    const failures = await undoPod(live, host, {
      graceful: false,
      ...(fresh ? { dropDisks: "anyway" } : {}),
    });
    if (failures.length > 0)
      return { kind: "stuck", error: attach(error, failures), spans: ordered() };
    return { kind: "undone", error, spans: ordered() };
  }
}

/** The error with the end of the guest's console and what to look at, when it is about a guest. */
function withConsole(error: PodnetError, { vm, plan }: LivePod): PodnetError {
  if (vm === undefined || !/^(?:QEMU_EXITED|BOOT_FAILED|AGENT_)/.test(error.code)) return error;
  return error.with({
    hint: "See that the image runs podnet's agent or a hyperstart, and what it says on its console",
    // Present also when it is empty: the hint refers to it. Of an attached machine podnet has none.
    details: machineKindOf(plan.vm).hasConsole ? { console: lastWords(vm.consoleTail()) } : {},
  });
}
