import { guestOf } from "../guest/guest-of.ts";
import type { PodPlan } from "../store/pod-plan.ts";
import { machineKindOf } from "./machine-of.ts";

/** Whether a pod's machine waits after its start until its NICs are plugged. */
export const isHeld = (plan: Pick<PodPlan, "agent" | "vm">): boolean =>
  guestOf(plan).needsNicsFirst && machineKindOf(plan.vm).isOwn;
