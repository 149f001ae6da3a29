import { join } from "node:path";
import type { PodSpec } from "../../../api/pod-spec.ts";
import type { VmPlan } from "../../../hypervisor/driver.ts";
import { checkOwnSize } from "./own-disk-size.ts";
import type { Snapshot } from "./snapshot.ts";

/** Size of a layer where neither its pod nor the node says one. */
const usualMib = 10_240;

/**
 * The disk of a persistent writable layer after these disks, and the word by which the agent finds
 * it; with an ephemeral layer the disks as they are. Pure. Throws as `checkOwnSize`.
 */
export function withLayer(
  { boot }: PodSpec,
  disks: VmPlan["disks"],
  snapshot: Snapshot,
): Pick<VmPlan, "disks" | "cmdline"> {
  const { layer, cmdline } = boot;
  if (layer === undefined) return { disks, cmdline };
  const { disksDir, podId, diskMaxMib = 0 } = snapshot;
  if (layer.mib !== undefined) checkOwnSize(layer.mib, snapshot, "boot.layer_mib");
  const mib = layer.mib ?? (diskMaxMib > 0 ? diskMaxMib : usualMib);
  const path = join(disksDir, podId, "layer.raw");
  // Linux names the disks of virtio in the order of their slots.
  const name = `vd${String.fromCharCode("a".charCodeAt(0) + disks.length)}`;
  return {
    disks: [
      ...disks,
      { path, format: "raw", readOnly: false, isDevice: false, layer: { bytes: mib * 2 ** 20 } },
    ],
    cmdline: `${cmdline} podnet.layer=${name}`,
  };
}
