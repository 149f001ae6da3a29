import type { SeedPlan, VmPlan } from "../../../hypervisor/driver.ts";
import { guestOf } from "../guest/guest-of.ts";
import { guestConfigOf } from "../guest/guest-config.ts";
import { staying } from "../store/pod-plan.ts";
import type { PodContents } from "../store/pod-row.ts";

/**
 * The machine as its driver starts it: with the seed disk, whose contents follow the guest's
 * network. Pure.
 */
export function machineOf(pod: PodContents): VmPlan {
  const seed = seedOf(pod);
  return { ...pod.plan.vm, ...(seed === undefined ? {} : { seed }) };
}

/**
 * What cloud-init finds (its documentation, "NoCloud" and "Networking config Version 2"): JSON,
 * which is YAML. The instance is the pod, whenever it starts: what is done once for an instance is
 * done once for a pod. With an agent in the guest the network is the agent's, and nothing is said
 * of it. Undefined for a pod that asks for no such disk.
 */
export function seedOf(pod: PodContents): SeedPlan | undefined {
  const { podId, interfaces } = pod.plan;
  const { cloudInit } = pod.spec.boot;
  if (cloudInit === undefined) return undefined;
  const guest = guestConfigOf(pod);
  return {
    volume: "cidata",
    files: {
      "meta-data": `${JSON.stringify({ "instance-id": podId, "local-hostname": guest.hostname })}\n`,
      "user-data": cloudInit.userData,
      ...guestOf(pod.plan).seedFiles(guest, staying(interfaces)),
    },
  };
}
