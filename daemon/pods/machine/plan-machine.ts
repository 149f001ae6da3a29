import type { PodSpec } from "../../../api/pod-spec.ts";
import type { VmPlan } from "../../../hypervisor/driver.ts";
import type { GuestKind } from "../guest/kind.ts";
import { planVm } from "../plan/plan-boot.ts";
import type { Snapshot } from "../plan/snapshot.ts";
import { planAttachedVm } from "./plan-attached.ts";

/** Decides a new pod's machine. Throws as `planVm`. */
export function planMachine(
  spec: PodSpec,
  snapshot: Snapshot,
  { needsNicsFirst }: Pick<GuestKind, "needsNicsFirst">,
): VmPlan {
  const { attached } = spec;
  if (attached !== undefined) return planAttachedVm(attached, snapshot);
  return { ...planVm(spec, snapshot), ...(needsNicsFirst ? { held: true } : {}) };
}
