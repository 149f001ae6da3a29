import type { SeedPlan, VmPlan } from "../../../hypervisor/driver.ts";
import { guestOf } from "../guest/guest-of.ts";
import { isHeld } from "../machine/held.ts";
import { guestConfigOf } from "../guest/guest-config.ts";
import { type NicInterface, type PodPlan, staying, withNic } from "../store/pod-plan.ts";
import { hasOwnTap } from "../interfaces/kinds/kind-of.ts";
import type { PodContents } from "../store/pod-row.ts";

/**
 * The machine as its driver starts it: held until its NICs are plugged where the guest needs them
 * first, with the NIC that its template may have, with the seed disk, which describes the guest's
 * network, and with the program that its template's guest is to know. Pure.
 */
export function machineOf(pod: PodContents): VmPlan {
  const seed = seedOf(pod);
  const first = templateNicOf(pod.plan);
  return {
    ...pod.plan.vm,
    ...(isHeld(pod.plan) ? { held: true } : {}),
    ...(first === undefined ? {} : { nic: first.nic }),
    ...(seed === undefined ? {} : { seed }),
    ...programOf(pod.plan),
  };
}

/** What a clone's main process is started from; a machine that boots reads it by itself. */
function programOf({ vm, process }: PodPlan): Pick<VmPlan, "program"> {
  if (process === undefined || vm.factory === undefined) return {};
  const { args, env, workdir } = process;
  const path = env.findLast((each) => each.env === "PATH")?.value;
  return { program: { args, workdir, ...(path === undefined ? {} : { path }) } };
}

/**
 * The interface whose NIC a clone may have from its template: the one in the first slot, on a tap
 * that podnetd opens before the machine starts. Undefined for a machine that boots.
 */
export const templateNicOf = ({ vm, interfaces }: PodPlan): NicInterface | undefined =>
  vm.factory !== undefined
    ? withNic(staying(interfaces)).find((each) => each.nic.slot === 1 && hasOwnTap(each))
    : undefined;

/**
 * The contents of the seed disk (cloud-init's documentation, "NoCloud" and "Networking config
 * Version 2"): JSON, which is YAML. The instance is the pod over all its starts, so cloud-init does
 * once for a pod what it does once for an instance. With an agent in the guest the network is the
 * agent's, and the disk says nothing of it. Undefined for a pod without such a disk.
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
