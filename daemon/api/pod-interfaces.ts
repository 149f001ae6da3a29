import type { ServiceImpl } from "@connectrpc/connect";
import type { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import type { Plan, Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { validatePodRef } from "../../api/validate/exec.ts";
import {
  type InterfaceChange,
  validateAddInterface,
  validateRemoveInterface,
  validateUpdateInterface,
} from "../../api/validate/interface-change.ts";
import { describeChange } from "../pods/plan/change-text.ts";
import { note, type ServiceParts, viewPod } from "./context.ts";
import { refuseOthersLinks } from "./others-links.ts";
import { planView } from "./views.ts";

type Methods = Pick<
  ServiceImpl<typeof PodService>,
  "addInterface" | "updateInterface" | "removeInterface"
>;

interface Asked {
  readonly idOrName: string;
  readonly planOnly: boolean;
}

/** Changes the interfaces of running pods. */
export function podInterfaces(parts: ServiceParts): Methods {
  const { pods, config, network, networks, host } = parts;
  const carryOut = async (
    { idOrName, planOnly }: Asked,
    change: InterfaceChange,
    log: () => void,
  ): Promise<{ pod: Pod } | { plan: Plan }> => {
    const ref = validatePodRef(idOrName);
    if (planOnly) {
      const { before, after } = await pods.changes.planInterface(ref, change);
      const sections = describeChange(before, after, networks.list(), {
        fragment: (fragment) => network.describe(fragment),
        plug: (nic, vm, queues) => host.driver.describePlug(nic, vm, queues),
      });
      return { plan: planView(after.plan.podId, sections) };
    }
    log();
    return { pod: viewPod(await pods.changes.changeInterface(ref, change), parts) };
  };
  return {
    addInterface: (request, context) => {
      const change = validateAddInterface(request, config.network.name);
      refuseOthersLinks([change.spec], context.values, () => "interface");
      return carryOut(request, change, () =>
        note(parts, context, `add interface ${request.idOrName}`),
      );
    },
    updateInterface: (request, context) =>
      carryOut(request, validateUpdateInterface(request), () =>
        note(parts, context, `set interface ${request.idOrName} ${request.guestName}`),
      ),
    removeInterface: (request, context) =>
      carryOut(request, validateRemoveInterface(request), () =>
        note(parts, context, `remove interface ${request.idOrName} ${request.guestName}`),
      ),
  };
}
