import { PodnetError } from "../../../core/errors.ts";
import type { PodRow, PodState } from "../store/pod-row.ts";

/** `WRONG_STATE`: a pod is not in the state that an operation needs, with what to do about it. */
export const wrongState = (row: PodRow, wanted: PodState): PodnetError =>
  new PodnetError("WRONG_STATE", `Pod "${row.name}" is ${row.state} instead of ${wanted}`, {
    hint: whatToDo(row),
    details: { state: row.state },
  });

/** A pod has a machine that podnetd does not hold, or not yet. */
export const notHeld = ({ name, state, reason }: PodRow): PodnetError =>
  new PodnetError(
    "WRONG_STATE",
    `Pod "${name}" ${state === "running" ? "runs" : `is ${state}`}, but ${reason ?? "alone"}`,
    {
      hint: "Wait: podnetd keeps trying; see its progress: podnet get",
      details: { state },
    },
  );

/** How a pod gets to run, for the hint. */
function whatToDo({ state, name }: PodRow): string {
  if (state === "creating") return "Wait until it runs";
  if (state === "paused") return `Resume it: podnet resume ${name}`;
  if (state === "deleting") return "It is being deleted: create another";
  return `Start it: podnet start ${name}`;
}
