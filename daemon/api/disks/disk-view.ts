import type { MessageInitShape } from "@bufbuild/protobuf";
import { DiskState, type PodDiskSchema } from "../../../api/gen/podnet/v1/pod_pb.ts";
import type { LivePod } from "../../pods/lifecycle/live-pod.ts";
import type { DataDiskPlan } from "../../pods/store/data-disks.ts";

/** A plugged disk as the API shows it. */
export const diskView = (
  { name, path, format, readOnly, madeMib = 0, change }: DataDiskPlan,
  live: LivePod | undefined,
): MessageInitShape<typeof PodDiskSchema> => ({
  name,
  path,
  format,
  readOnly,
  madeMib,
  state:
    change === "removing"
      ? DiskState.UNPLUG_PENDING
      : live?.disks.has(name) === true
        ? DiskState.PLUGGED
        : DiskState.PLANNED,
});
