import { join } from "node:path";
import type { AttachSpec } from "../../../api/pod-spec.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { NicPlace, NicPlan, VmPlan } from "../../../hypervisor/driver.ts";
import { attachedIds } from "../../../hypervisor/attach/release.ts";
import type { Snapshot } from "../plan/snapshot.ts";

/** Decides a pod's machine by the foreign machine that was found. */
export function planAttachedVm(
  attached: AttachSpec,
  { podId, podsDir, machine }: Snapshot,
): VmPlan {
  if (machine === undefined) throw new RangeError("The machine has not been looked at");
  const { type, accelerator, vcpu, memoryMib } = machine;
  return {
    podId,
    vcpu,
    memoryMib,
    cmdline: "",
    disks: [],
    attached: { ...attached, type, accelerator },
    // Never made: nothing of it is podnet's.
    runDir: join(podsDir, podId),
  };
}

/** Names a NIC there, in the place that is its turn. Throws `NIC_SLOTS_FULL`. */
export function attachedNic(
  podId: Snapshot["podId"],
  position: number,
  place: NicPlace | undefined,
  field: string,
): Pick<NicPlan, "nicId" | "netdevId" | "fdName" | "slot" | "bus"> {
  if (place === undefined)
    throw new PodnetError("NIC_SLOTS_FULL", "The machine has no more places for NICs", {
      field: field.replace(/\[.*/, ""),
      hint: "Ask for fewer interfaces, or start it with more: one pcie-root-port each, or a bridge",
    });
  return { ...attachedIds(podId, position), ...place };
}
