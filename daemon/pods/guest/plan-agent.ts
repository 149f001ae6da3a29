import type { PodSpec } from "../../../api/pod-spec.ts";
import { refuseUntold } from "./plan-agentless.ts";
import type { PodPlan } from "../store/pod-plan.ts";

/** Decides who configures the guest. Throws `UNSUPPORTED`. */
export function planAgent(spec: PodSpec): PodPlan["agent"] {
  const { agent } = spec.boot;
  if (agent === "none") refuseUntold(spec);
  return agent;
}
