import { PodnetError } from "../../core/errors.ts";
import type { PodId } from "../../core/names.ts";
import type { NicPlan } from "../driver.ts";
import type { Nics } from "../nics/nics.ts";

/** How the ids begin that a pod's NICs have in a foreign machine: they cannot be the owner's. */
export const attachedPrefix = (podId: PodId): string => `podnet-${podId}-`;

/** Ids of a pod's NIC there. */
export const attachedIds = (
  podId: PodId,
  position: number,
): Pick<NicPlan, "nicId" | "netdevId" | "fdName"> => ({
  nicId: `${attachedPrefix(podId)}nic${position}`,
  netdevId: `${attachedPrefix(podId)}net${position}`,
  fdName: `${attachedPrefix(podId)}fd${position}`,
});

/** Positions of a pod's interfaces, of which each may have left something. */
const positions = 32;

/**
 * Takes everything of a pod back from a foreign machine: NICs, and what a plug that was cut short
 * has left. Nothing passes any more, whatever the guest does. Absent is success; can be repeated.
 * Throws `NIC_UNPLUG_PENDING` when the guest keeps a NIC.
 */
export async function release(nics: Nics, podId: PodId): Promise<void> {
  const never = new AbortController().signal;
  const ours = Array.from({ length: positions }, (_, i) => attachedIds(podId, i));
  // Of all that there may be: QEMU names no back ends and no descriptors.
  const left = await Promise.all(ours.map((ids) => nics.unplug({ ...ids, slot: 0 }, never)));
  const kept = ours.filter((_, i) => left[i] === "pending").map(({ nicId }) => nicId);
  if (kept.length === 0) return;
  throw new PodnetError("NIC_UNPLUG_PENDING", `The guest does not release ${kept.join(", ")}`, {
    hint: "No packets pass it any more; try again when the guest runs, or detach by force: podnet detach --force",
    details: { nics: kept.join(" ") },
  });
}
