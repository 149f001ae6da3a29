import type { ServiceImpl } from "@connectrpc/connect";
import type { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { invalid } from "../../api/fields.ts";
import { validateLimits } from "../../core/rate-limits.ts";
import { validatePodRef } from "../../api/validate/exec.ts";
import { parseIfName } from "../../core/names.ts";
import { portsOf } from "../pods/interfaces/pod-ports.ts";
import type { Replanned } from "../pods/lifecycle/changes.ts";
import { note, type ServiceParts, viewPod } from "./context.ts";
import { planView } from "./views.ts";

/** Changes the limits of running pods. */
export function podLimits(parts: ServiceParts): Pick<ServiceImpl<typeof PodService>, "limit"> {
  const { pods } = parts;
  return {
    async limit({ idOrName, guestName, limits, planOnly }, context) {
      const id = validatePodRef(idOrName);
      const name = guestName === "" ? undefined : parseIfName(guestName, "guest_name");
      const change = validateLimits(limits, "limits");
      if (change.in === undefined && change.out === undefined)
        throw invalid("limits", "No limit is to be changed", "Give limits.in or limits.out");
      if (planOnly) return { plan: planOf(pods.changes.planLimit(id, change, name), parts) };
      note(parts, context, `limit ${idOrName} ${guestName}`);
      return { pod: viewPod(await pods.changes.limit(id, change, name), parts) };
    },
  };
}

/** The rates of interfaces whose limits differ, before and after. */
function planOf({ before, after }: Replanned, { network, networks }: ServiceParts) {
  const linesOf = (pod: Replanned["after"]): readonly string[] => {
    const { published: _rules, sources: _guard, ...ports } = portsOf(pod.plan, networks.list());
    return network.describe(ports).filter((line) => line.startsWith("rate "));
  };
  const had = linesOf(before);
  const has = linesOf(after);
  const lines = [
    ...had.filter((line) => !has.includes(line)).map((line) => `- ${line}`),
    ...has.filter((line) => !had.includes(line)).map((line) => `+ ${line}`),
  ];
  return planView(after.plan.podId, [{ step: "port.limit", title: "Limits on the host", lines }]);
}
