import { assertNever } from "../../../core/brand.ts";
import { isPodnetError, PodnetError, toPodnetError } from "../../../core/errors.ts";
import { actions } from "./actions.ts";
import { reportOfEnd } from "./deadlines.ts";
import type { Host } from "./host.ts";
import type { LivePod } from "./live-pod.ts";
import type { Span } from "../../events/span.ts";
import { LoopUser } from "../../../linux/loop-turns.ts";
import type { Flow, Step, StepKind, StepOf } from "../plan/steps.ts";

/** Notified of every step. */
export interface Progress {
  /** `usualMs`: how long the step has usually taken, if that is known. */
  started(step: StepKind, startMs: number, usualMs?: number): void;
  finished(span: Span): void;
}

export interface StepRun {
  readonly live: LivePod;
  readonly host: Host;
  readonly progress: Progress;
  /** Milliseconds since the request arrived. */
  elapsed(): number;
}

/**
 * Runs a flow forward. The first failure aborts the steps alongside it. It is thrown once all have
 * ended, with its step, and with the other failures suppressed behind it. Undoes nothing.
 */
export async function runFlow(flow: Flow, run: StepRun, signal: AbortSignal): Promise<void> {
  switch (flow.kind) {
    case "sequence":
      for (const each of flow.flows) await runFlow(each, run, signal);
      return;
    case "together":
      return runTogether(flow.flows, run, signal);
    case "publish.hold":
    case "cni.add":
    case "netns.join":
    case "tap.open":
    case "port.attach":
    case "disk.make":
    case "vm.start":
    case "vm.attach":
    case "guest.ready":
    case "guest.mount":
    case "guest.write":
    case "guest.configure":
    case "nic.plug":
    case "disk.plug":
    case "guest.answer":
    case "vm.go":
    case "guest.verify":
    case "process.start":
      return runStep(flow, run, signal);
    default:
      return assertNever(flow);
  }
}

async function runTogether(
  flows: readonly Flow[],
  run: StepRun,
  signal: AbortSignal,
): Promise<void> {
  const stop = new AbortController();
  const both = AbortSignal.any([signal, stop.signal]);
  const failures: unknown[] = [];
  await Promise.all(
    flows.map(async (flow) => {
      try {
        await runFlow(flow, run, both);
      } catch (thrown) {
        failures.push(thrown);
        stop.abort(thrown);
      }
    }),
  );
  if (failures.length === 0) return;
  const [first, ...others] = failures;
  // Steps that the first failure aborted have no failure of their own.
  const real = others.filter((each) => each !== first && !isPodnetError(each, "CANCELLED"));
  throw real.length === 0 ? first : attach(first, real);
}

/** The first error, with the others as its cause. */
export function attach(first: unknown, others: readonly unknown[]): PodnetError {
  const error = toPodnetError(first);
  const cause = new AggregateError([error.cause ?? error, ...others], "Further errors followed");
  const { code, message, hint, field, step, details } = error;
  return new PodnetError(code, message, {
    ...(hint === undefined ? {} : { hint }),
    ...(field === undefined ? {} : { field }),
    ...(step === undefined ? {} : { step }),
    details,
    cause,
  });
}

/**
 * What the kernel, machines and guests of a hundred pods answer arrives together. If each pod went
 * on with its next step at once, calls and connections would wait for all of them.
 */
const steps = new LoopUser("pods", "qemu");

async function runStep(step: Step, run: StepRun, signal: AbortSignal): Promise<void> {
  const { turns } = run.host;
  if (!turns.begin()) await turns.enter(steps);
  const startMs = run.elapsed();
  run.progress.started(step.kind, startMs);
  try {
    refuseAborted(signal);
    const detail = await act(step, run, signal);
    const durationMs = Number((run.elapsed() - startMs).toFixed(3));
    run.progress.finished({ step: step.kind, startMs, durationMs, detail });
  } catch (thrown) {
    // A guest that restarts breaks off in the middle of a message.
    if (isPodnetError(thrown, "AGENT_DISCONNECTED", "AGENT_PROTOCOL"))
      await reportOfEnd(run.live.ended.signal);
    throw explain(thrown, step.kind, signal);
  }
}

function act<K extends StepKind>(
  step: StepOf<K>,
  run: StepRun,
  signal: AbortSignal,
): Promise<string> {
  // Each kind indexes its own action; TypeScript does not follow that through the union.
  const action = actions[step.kind];
  return action(step, run.live, run.host, signal);
}

function refuseAborted(signal: AbortSignal): void {
  if (signal.aborted) throw signal.reason;
}

/**
 * A failure with its step. An aborted wait failed by the signal's reason, whatever error the wait
 * throws.
 */
function explain(thrown: unknown, step: StepKind, signal: AbortSignal): PodnetError {
  const reason: unknown = signal.aborted ? signal.reason : undefined;
  if (isPodnetError(reason, "DEADLINE_EXCEEDED", "CANCELLED", "QEMU_EXITED", "BOOT_FAILED")) {
    const cause = thrown === reason ? {} : { cause: thrown };
    return reason.with({ step, ...cause });
  }
  return toPodnetError(thrown).with({ step });
}
