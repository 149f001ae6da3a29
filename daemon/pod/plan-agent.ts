import type { PodSpec } from "../../api/pod-spec.ts";
import { PodnetError } from "../../core/errors.ts";
import { refuseForHyperstart } from "./plan-hyperstart.ts";
import type { PodPlan } from "./pod-plan.ts";

/** Decides who configures the guest. Throws `UNSUPPORTED`. */
export function planAgent(spec: PodSpec): PodPlan["agent"] {
  const { agent, cloudInit } = spec.boot;
  if (agent === "none") throw notYet("boot.agent", "Guests without an agent");
  if (agent === "hyperstart") refuseForHyperstart(spec);
  if (cloudInit !== undefined) throw notYet("boot.cloud_init", "Seed disks");
  return agent;
}

const notYet = (field: string, what: string): PodnetError =>
  new PodnetError("UNSUPPORTED", `${what} are not supported yet`, {
    field,
    hint: "Leave it out",
  });
