import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type DataDisk, DataDiskSchema } from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { DiskState, type PodDiskSchema } from "../../../api/gen/podnet/v1/pod_pb.ts";
import type { LivePod } from "../../pods/lifecycle/live-pod.ts";
import type { DataDiskPlan } from "../../pods/store/data-disks.ts";
import type { PodPlan } from "../../pods/store/pod-plan.ts";

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

/** The plugged disks that a pod keeps, as a spec asks for them. */
export const diskSpecViews = ({ disks = [] }: Pick<PodPlan, "disks">): DataDisk[] =>
  disks
    .filter(({ change }) => change === undefined)
    .map(({ name, path, format, readOnly, madeMib }) =>
      create(
        DataDiskSchema,
        madeMib === undefined ? { name, file: path, format, readOnly } : { name, sizeMib: madeMib },
      ),
    );
