import type { ServiceImpl } from "@connectrpc/connect";
import type { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { validatePodRef } from "../../api/validate/exec.ts";
import { validateLabelsChange } from "../../api/validate/validate.ts";
import { note, type ServiceParts, viewPod } from "./context.ts";

type Methods = Pick<
  ServiceImpl<typeof PodService>,
  "stop" | "pause" | "resume" | "update" | "label"
>;

/** Stops, pauses, resumes, resizes and labels a pod. */
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

    async update({ idOrName, resources }, context) {
      const id = validatePodRef(idOrName);
      note(parts, context, `update ${idOrName}`);
      return { pod: viewPod(await pods.changes.resize(id, resources ?? {}), parts) };
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
