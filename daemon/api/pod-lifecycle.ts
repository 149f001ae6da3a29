import type { ServiceImpl } from "@connectrpc/connect";
import type { Resources } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import type { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { validatePodRef } from "../../api/validate/exec.ts";
import { validateLabelsChange } from "../../api/validate/validate.ts";
import { PodnetError } from "../../core/errors.ts";
import { refuseOwners } from "../pods/machine/attach.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { note, type ServiceParts, viewPod } from "./context.ts";

type Methods = Pick<
  ServiceImpl<typeof PodService>,
  "stop" | "pause" | "resume" | "update" | "label"
>;

/** Stops, pauses, resumes and labels a pod; explains why its resources cannot change. */
export function podLifecycle(parts: ServiceParts): Methods {
  const { pods, policies } = parts;
  return {
    async stop({ idOrName, force }, context) {
      note(parts, context, `stop ${idOrName}`);
      return { pod: viewPod(await pods.stop(validatePodRef(idOrName), { force }), parts) };
    },

    async pause({ idOrName }, context) {
      note(parts, context, `pause ${idOrName}`);
      return { pod: viewPod(await pods.pause(validatePodRef(idOrName)), parts) };
    },

    async resume({ idOrName }, context) {
      note(parts, context, `resume ${idOrName}`);
      return { pod: viewPod(await pods.resume(validatePodRef(idOrName)), parts) };
    },

    update({ idOrName, resources }) {
      const row = pods.find(validatePodRef(idOrName));
      refuseOwners(row, "change");
      refuseChange(row, resources);
      return { pod: viewPod(row, parts) };
    },

    async label({ idOrName, set, remove }, context) {
      const id = validatePodRef(idOrName);
      const change = validateLabelsChange({ set, remove });
      note(parts, context, `label ${idOrName}`);
      const row = await pods.setLabels(id, change);
      // (Also when nothing has changed: an earlier call may have failed here.)
      await policies.labelled();
      return { pod: viewPod(row, parts) };
    },
  };
}

/**
 * A machine is made with its memory and processors. An absent or unchanged value is not a change.
 */
function refuseChange({ name, plan: { vm } }: PodRow, asked: Resources | undefined): void {
  const { vcpu, memoryMib } = asked ?? {};
  const changes = [
    ...(vcpu === undefined || vcpu === vm.vcpu ? [] : [["vcpu", vm.vcpu, vcpu] as const]),
    ...(memoryMib === undefined || memoryMib === vm.memoryMib
      ? []
      : [["memory_mib", vm.memoryMib, memoryMib] as const]),
  ];
  const [first] = changes;
  if (first === undefined) return;
  const what = changes.map(([field, has, wanted]) => `${field} ${has} (asked for ${wanted})`);
  throw new PodnetError(
    "UNSUPPORTED",
    `Pod "${name}" has ${what.join(" and ")}: a machine's memory and processors are fixed when it is made`,
    {
      field: `resources.${first[0]}`,
      hint: "Delete the pod, and create it again with the resources it is to have",
    },
  );
}
