import type { ServiceImpl } from "@connectrpc/connect";
import type { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { validatePodRef } from "../../api/validate-exec.ts";
import { staying, withNic } from "../pods/store/pod-plan.ts";
import type { ServiceParts } from "./context.ts";

/** The counters of what the host dropped and refused of a pod. */
export const podGuard = ({
  records,
  network,
}: ServiceParts): Pick<ServiceImpl<typeof PodService>, "guard"> => ({
  async guard(request, { signal }) {
    const { plan } = records.find(validatePodRef(request.idOrName));
    const counted = [
      ...(await network.observe.drops(signal)),
      ...(await network.observe.refusals(signal)),
    ];
    const counts = withNic(staying(plan.interfaces)).flatMap(({ guestName, nic }) =>
      counted
        .filter(({ link, packets }) => link === nic.tap && packets > 0)
        .map(({ kind, packets, bytes }) => ({
          interface: guestName,
          kind,
          packets: BigInt(packets),
          bytes: BigInt(bytes),
        })),
    );
    return { counts };
  },
});
