import type { PodSpec } from "../../../api/pod-spec.ts";
import type { PodPlan } from "../store/pod-plan.ts";
import { planVm } from "../plan/plan-boot.ts";
import type { Snapshot } from "../plan/snapshot.ts";
import { planAttachedVm } from "./plan-attached.ts";

/** Decides a new pod's machine. Throws as `planVm`. */
export const planMachine = (spec: PodSpec, snapshot: Snapshot): PodPlan["vm"] =>
  spec.attached === undefined ? planVm(spec, snapshot) : planAttachedVm(spec.attached, snapshot);
