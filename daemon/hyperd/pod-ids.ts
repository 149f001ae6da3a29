import type { PodRow } from "../pods/store/pod-row.ts";
import { type DamagedPod, isDamaged } from "../pods/store/pod-rows.ts";

/** A pod that may be unreadable. */
export type AnyPod = PodRow | DamagedPod;

/** The id by which callers of hyperd know a pod: the one they gave, which is its name as well. */
export const idOf = (row: AnyPod): string =>
  isDamaged(row) ? row.name : (row.spec.hyperd?.id ?? row.name);

/** The machine's id; empty where there is none. */
export const vmOf = (row: AnyPod): string =>
  !isDamaged(row) && ["creating", "running", "paused", "stopping"].includes(row.state)
    ? `vm-${row.id}`
    : "";
