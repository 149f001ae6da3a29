import { type Change, changes, isChange } from "./changes.ts";
import type { Action, Case, Operation, Point } from "./points.ts";

/** Milliseconds a create may take where one call hangs, and how long that call hangs. */
export const hanging = { createMs: 4000, callMs: 5500 } as const;

/**
 * The last effect before a pod runs: killed there, podnetd leaves everything of it but that it
 * runs.
 */
export const almost = "commit:running:before#1";

export const armedDelete = "from:commit:deleting:before";
const armedCreate = "from:commit:claim:before";

export const armed = (point: Point, action: Action): string =>
  `${point}=${action === "hang" ? `hang:${hanging.callMs}` : action}`;

/**
 * What a podnetd is armed with, beside the point itself, for an operation it is to begin: where its
 * points are counted from.
 */
export const countedFrom: Readonly<Record<Exclude<Operation, Change>, readonly string[]>> = {
  create: [armedCreate],
  clone: [armedCreate],
  undo: ["from:commit:running:before", `${almost}=error`],
  delete: [armedDelete],
  again: ["from:commit:failed:before"],
  down: [armedDelete],
  recover: [],
  reattach: [],
  start: [],
};

/** The failpoints of the podnetd that a case begins with. */
export function armedFor({ operation, point, action }: Case): readonly string[] {
  if (operation === "recover") return [armedCreate, `${almost}=kill`];
  if (operation === "start" || operation === "reattach") return [];
  const from = isChange(operation) ? [`from:${changes[operation].from}`] : countedFrom[operation];
  return [...from, armed(point, action)];
}
