import { isDeepStrictEqual } from "node:util";
import type { ServiceImpl } from "@connectrpc/connect";
import type { Plan } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { validatePodRef } from "../../api/validate/exec.ts";
import { validateLabelsChange } from "../../api/validate/validate.ts";
import { sizeOf } from "../../hypervisor/driver.ts";
import type { Replanned } from "../pods/lifecycle/changes.ts";
import { sizeText } from "../pods/lifecycle/resize.ts";
import { refuseProtectedLabels } from "./others-links.ts";
import { note, type ServiceParts, viewPod } from "./context.ts";
import { planView } from "./views.ts";

type Methods = Pick<
  ServiceImpl<typeof PodService>,
  "stop" | "pause" | "resume" | "update" | "label"
>;

/** What a change of a pod's size does, for people. */
function resizePlan({ before, after }: Replanned): Plan {
  const { plan, spec } = after;
  if (isDeepStrictEqual(spec.resources, before.spec.resources)) return planView(plan.podId, []);
  const [was, becomes] = [before, after].map(({ plan: { vm } }) => sizeText(sizeOf(vm)));
  const written = {
    step: "store.claim",
    title: "Written down, before anything happens",
    lines: [`${was} become ${becomes}`],
  };
  const plugged = {
    step: "vm.grow",
    title: "Plugged into the machine, and switched on by its guest",
    lines: [`its size: ${becomes}`],
  };
  return planView(plan.podId, plan.vm.grown === undefined ? [written] : [written, plugged]);
}

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

    async update({ idOrName, resources, planOnly }, context) {
      const id = validatePodRef(idOrName);
      if (planOnly) return { plan: resizePlan(pods.changes.planResize(id, resources ?? {})) };
      note(parts, context, `update ${idOrName}`);
      return { pod: viewPod(await pods.changes.resize(id, resources ?? {}), parts) };
    },

    async label({ idOrName, set, remove }, context) {
      const id = validatePodRef(idOrName);
      const change = validateLabelsChange({ set, remove });
      refuseProtectedLabels(Object.keys(change.set), context.values, "set");
      refuseProtectedLabels(change.remove, context.values, "remove");
      note(parts, context, `label ${idOrName}`);
      const row = await pods.setLabels(id, change);
      // (Also when nothing has changed: an earlier call may have failed here.)
      await policies.labelled();
      return { pod: viewPod(row, parts) };
    },
  };
}
