import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import type { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import type { Plan } from "../../api/gen/podnet/v1/pod_pb.ts";
import { type AttachRequest, validateAttach } from "../../api/validate/attach.ts";
import { validatePodRef } from "../../api/validate/exec.ts";
import type { CreateOptions } from "../pods/lifecycle/starts.ts";
import { note, type ServiceParts, viewPod } from "./context.ts";

type Methods = Pick<ServiceImpl<typeof PodService>, "attach" | "detach">;

/** How a pod is planned and made for a caller, as by a create. */
export interface Creating {
  plan(asked: AttachRequest, context: HandlerContext): Promise<Plan>;
  options(context: HandlerContext): CreateOptions;
}

/** Gives NICs to foreign machines, and removes them. */
export function podAttach(parts: ServiceParts, creating: Creating): Methods {
  const { pods, config } = parts;
  return {
    async attach(request, context) {
      const asked = validateAttach(request, { network: config.network.name });
      if (asked.planOnly) return { plan: await creating.plan(asked, context) };
      note(parts, context, `attach ${asked.spec.attached.qmp}`);
      const row = await pods.create(asked, creating.options(context));
      return { pod: viewPod(row, parts) };
    },

    detach({ idOrName, force }, context) {
      note(parts, context, `detach ${idOrName}`);
      return pods.detach(validatePodRef(idOrName), { force });
    },
  };
}
