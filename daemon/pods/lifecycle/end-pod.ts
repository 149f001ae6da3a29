import { isPodnetError, PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { PodId } from "../../../core/names.ts";
import type { PodRow } from "../store/pod-row.ts";
import { dropSandboxes } from "../interfaces/act-sandboxes.ts";
import { adoptVm, type LivePod, livePod, unsubscribe } from "./live-pod.ts";
import { attach } from "./run-steps.ts";
import { supervise } from "./supervise.ts";
import type { Supervision } from "./supervision.ts";
import { undoPod } from "./undo.ts";
import { wrongState } from "./wrong-state.ts";

/** The parts of podnetd that ending a pod needs. */
export interface Ending extends Supervision {
  held(id: PodId): LivePod | undefined;
}

export interface StopOptions {
  /** The guest is not asked. */
  readonly force: boolean;
  /** Why, where no caller requested it. */
  readonly reason?: string;
}

/**
 * Ends a pod's machine and keeps the pod's resources, so that it can be started again. A guest
 * whose machine is paused is cut off from the network and resumed, so that it can power off. A pod
 * without a running machine is stopped. The caller has the pod's turn.
 */
export async function stopPod(
  row: PodRow,
  { force, reason }: StopOptions,
  ending: Ending,
): Promise<void> {
  if (row.state === "stopped") return;
  if (row.state === "creating" || row.state === "deleting") throw wrongState(row, "running");
  const { records, log } = ending;
  const why = reason === undefined ? {} : { reason };
  const error = await takeAway(row, { state: "stopping", graceful: !force, why }, ending);
  if (error !== undefined) {
    ending.writeDown(row.plan, () => records.state(row.plan, "failed", { error }));
    throw error;
  }
  const unwritten = ending.writeDown(row.plan, () => {
    records.processes.gone(row.plan);
    records.state(row.plan, "stopped", why);
  });
  if (unwritten !== undefined) throw unwritten;
  log.info({ pod_id: row.id }, "Pod stopped");
}

/**
 * Ends a pod with its machine and all its resources. `force` goes on when a step cannot be undone,
 * and when the store has no room: machine and disk are removed, and the record is removed as soon
 * as the store can be written.
 */
export async function deletePod(row: PodRow, force: boolean, ending: Ending): Promise<void> {
  const { records, log } = ending;
  const error = await takeAway(row, { state: "deleting", graceful: !force }, ending);
  if (error !== undefined && !force) {
    ending.writeDown(row.plan, () => records.state(row.plan, "failed", { error }));
    throw error;
  }
  const left = error !== undefined;
  const unwritten = ending.writeDown(row.plan, () => records.forget(row.plan, undefined, { left }));
  if (unwritten !== undefined) throw force ? recordStays(row, unwritten) : unwritten;
  if (error !== undefined) dropSandboxes(row.plan, ending.host);
  log.info({ pod_id: row.id }, "Pod deleted");
}

const recordStays = ({ name }: PodRow, thrown: unknown): PodnetError => {
  const { code, message, details } = toPodnetError(thrown);
  return new PodnetError(
    code,
    `Pod "${name}" has no machine and no disk any more, but its record stays: ${message}`,
    {
      hint: "Make room in the state directory: podnetd then removes the record by itself",
      details,
      cause: thrown,
    },
  );
};

/** Takes down a pod; returns what could not be undone. */
async function takeAway(
  row: PodRow,
  {
    state,
    graceful,
    why = {},
  }: {
    readonly state: "stopping" | "deleting";
    readonly graceful: boolean;
    readonly why?: { readonly reason?: string };
  },
  ending: Ending,
): Promise<PodnetError | undefined> {
  const { id, name, plan } = row;
  const { records, host, log } = ending;
  const live = ending.held(id) ?? livePod(row, records.run(id));
  try {
    records.state(plan, state, why);
    // A disk that is gone must not belong to a pod that is to run.
    if (state === "deleting") await records.flushed();
  } catch (thrown) {
    const unwritable = state === "deleting" && isPodnetError(thrown, "STATE_UNWRITABLE");
    if (!unwritable || graceful) {
      undoRecord(row, ending);
      followAgain(live, ending);
      throw unwritable ? mayBeForced(name, thrown) : thrown;
    }
    log.warn(
      { pod_id: id, err: thrown },
      "Deleting the pod, although the deletion cannot be recorded",
    );
  }
  unsubscribe(live);
  ending.gone(live);
  const [first, ...others] = await undoPod(live, host, {
    graceful,
    ...(state === "deleting" ? { dropDisks: graceful ? "last" : "anyway" } : {}),
  });
  if (first === undefined) return undefined;
  const error = others.length === 0 ? toPodnetError(first) : attach(first, others);
  log.error({ pod_id: id, err: error }, "Failed to remove all of the pod");
  return error;
}

/** A state that was committed, and may not last: a start of podnetd would act on it. */
function undoRecord(row: PodRow, { records, log }: Ending): void {
  if (records.getUsable(row.id)?.state === row.state) return;
  try {
    records.stateAgain(row, "its end cannot be recorded");
  } catch (err) {
    log.error({ pod_id: row.id, err }, "The pod is recorded as one that ends, and does not");
  }
}

/** The end has not begun: the machine runs on, and is followed as before. */
function followAgain(live: LivePod, ending: Ending): void {
  if (live.vm === undefined) return;
  unsubscribe(live);
  adoptVm(live, live.vm);
  supervise(live, ending);
}

const mayBeForced = (name: string, { message, details, cause }: PodnetError): PodnetError =>
  new PodnetError("STATE_UNWRITABLE", message, {
    hint: `Make room in the state directory; podnet delete --force ${name} ends the machine and frees its disk all the same`,
    details,
    cause,
  });
