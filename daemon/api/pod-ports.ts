import type { ServiceImpl } from "@connectrpc/connect";
import type { Plan } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import type { PublishedPort } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import type { PortSpec } from "../../api/pod-spec.ts";
import { validatePodRef } from "../../api/validate/exec.ts";
import { validatePorts } from "../../api/validate/ports.ts";
import { refuseBusy } from "../published/hold-error.ts";
import type { Replanned } from "../pods/lifecycle/changes.ts";
import { notPublished, removedPorts } from "../pods/lifecycle/publish.ts";
import { holdSection, publishedText, releaseSection } from "../published/published-text.ts";
import { portsOf } from "../pods/interfaces/pod-ports.ts";
import type { PodPlan } from "../pods/store/pod-plan.ts";
import type { PublishedPlan } from "../published/published-plan.ts";
import { note, type ServiceParts, viewPod } from "./context.ts";
import { planView, portView } from "./views.ts";

type Methods = Pick<ServiceImpl<typeof PodService>, "publishPorts" | "unpublishPorts">;

/** Publishes ports of running pods, and withdraws them. */
export function podPorts(parts: ServiceParts): Methods {
  const { pods } = parts;
  return {
    async publishPorts({ idOrName, ports, planOnly }, context) {
      const asked = validatePorts(ports);
      const id = validatePodRef(idOrName);
      if (planOnly) {
        const planned = pods.changes.planPublish(id, asked);
        const [before, after] = [planned.before.plan, planned.after.plan];
        const added = after.published?.slice(before.published?.length ?? 0) ?? [];
        refuseBusy(added);
        return { plan: planOf(before, after, added, parts), ports: added.map(portView) };
      }
      note(parts, context, `publish ${idOrName}`);
      const { row, ports: added } = await pods.changes.publish(id, asked);
      return { pod: viewPod(row, parts), ports: added.map(portView) };
    },

    async unpublishPorts({ idOrName, ports, planOnly }, context) {
      const asked = validatePorts(
        // At the host one says enough.
        ports.map((port) => ({ ...port, podPort: port.podPort || port.hostPort })),
      );
      const id = validatePodRef(idOrName);
      if (planOnly) {
        const planned = pods.changes.planUnpublish(id, asked);
        const plan = planOf(planned.before.plan, planned.after.plan, [], parts);
        return { plan, ...outcome(planned, asked, ports) };
      }
      note(parts, context, `unpublish ${idOrName}`);
      const done = await pods.changes.unpublish(id, asked);
      return { pod: viewPod(done.row, parts), ...outcome(done, asked, ports) };
    },
  };
}

/**
 * The ports that an unpublish removes, and the requested entries, unchanged, that were not
 * published.
 */
const outcome = (
  { before, after }: Replanned,
  asked: readonly PortSpec[],
  sent: readonly PublishedPort[],
): { readonly removed: PublishedPort[]; readonly notPublished: PublishedPort[] } => ({
  removed: removedPorts(before.plan, after.plan).map(portView),
  notPublished: notPublished(before.plan, asked).flatMap((at) => sent[at] ?? []),
});

/** The steps of a change of published ports, without unchanged ports. */
function planOf(
  before: PodPlan,
  after: PodPlan,
  added: readonly PublishedPlan[],
  { network, networks }: ServiceParts,
): Plan {
  const gone = removedPorts(before, after);
  const rules = network.describe(portsOf(after, networks.list()), portsOf(before, networks.list()));
  return planView(after.podId, [
    {
      step: "store.claim",
      title: "Written down, before anything happens",
      lines: [
        ...gone.map((each) => `unpublish ${publishedText(each)}`),
        ...added.map((each) => `publish ${publishedText(each)}`),
      ],
    },
    ...(added.length === 0 ? [] : [holdSection(added)]),
    { step: "port.attach", title: "Rules that go and come", lines: [...rules] },
    ...(gone.length === 0 ? [] : [releaseSection(gone)]),
  ]);
}
