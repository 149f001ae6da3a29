import { printable } from "../../core/names.ts";
import { invalid } from "../fields.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import type { BootSpec } from "../pod-spec.ts";
import { mostDiskMib } from "./data-disks.ts";

/** A file system with a journal needs some. */
const leastMib = 16;
/** By this word the agent takes a disk for the root: that of an image that is given as a file. */
const rootWord = /(?:^|\s)podnet\.root=/;

/** Checks the writable layer of a pod of an image. */
export function validateLayer(boot: wire.Boot): Pick<BootSpec, "layer"> {
  const { layer, layerMib, image, cmdline } = boot;
  if (layer !== "" && layer !== "ephemeral" && layer !== "persistent")
    throw invalid(
      "boot.layer",
      `Layer "${printable(layer)}" is not known`,
      "Use ephemeral or persistent",
    );
  if (layer !== "persistent") {
    if (layerMib === undefined) return {};
    throw invalid(
      "boot.layer_mib",
      "An ephemeral layer is as large as half of the machine's memory",
      "Leave layer_mib out, or give layer: persistent",
    );
  }
  if (image === "" && !rootWord.test(cmdline))
    throw invalid(
      "boot.layer",
      "Only the root of an image has a writable layer",
      "Give boot.image; what a pod writes to its disks is kept as it is",
    );
  if (layerMib === undefined) return { layer: {} };
  if (layerMib < leastMib || layerMib > mostDiskMib)
    throw invalid(
      "boot.layer_mib",
      `A layer has no ${layerMib} MiB`,
      `Use ${leastMib} to ${mostDiskMib}`,
    );
  return { layer: { mib: layerMib } };
}
