import type { ServiceImpl } from "@connectrpc/connect";
import type { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { validatePodRef } from "../../api/validate-exec.ts";
import { staying, withNic } from "../pods/store/pod-plan.ts";
import { denialView } from "../policies/denials.ts";
import { serviceOf } from "../policies/service-of.ts";
import { guardCounts } from "../traffic/guard-counts.ts";
import { destinationOf, gatherTrace } from "../trace/gather.ts";
import { tracePath } from "../trace/path.ts";
import type { ServiceParts } from "./context.ts";

/** What becomes of a pod's packets: counters of those that were stopped, and the path of one. */
export const podPackets = (
  parts: ServiceParts,
): Pick<ServiceImpl<typeof PodService>, "guard" | "trace"> => ({
  async guard(request, { signal }) {
    const { records, network, denials } = parts;
    const { plan } = records.find(validatePodRef(request.idOrName));
    const ports = withNic(staying(plan.interfaces)).map(({ guestName, nic }) => ({
      interface: guestName,
      link: nic.tap,
    }));
    return {
      counts: await guardCounts(ports, network.observe, signal),
      denials: (await denials.list(signal, [plan.podId])).map(denialView),
    };
  },

  async trace({ idOrName, destination, port, protocol }) {
    const { plan } = parts.records.find(validatePodRef(idOrName));
    const service = serviceOf(protocol, port);
    const to = destinationOf(destination, plan, parts);
    const { steps, verdict } = tracePath(
      { plan, ...to, ...service },
      await gatherTrace(parts, plan, to.ip),
    );
    return { destination: to.ip ?? destination, steps: [...steps], verdict };
  },
});
