import { create } from "@bufbuild/protobuf";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import {
  type LiveTraceBounds,
  type PodService,
  type TraceLiveResponse,
  TraceLiveResponseSchema,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { validatePodRef } from "../../api/validate/exec.ts";
import { validateTraceBounds } from "../../api/validate/traffic.ts";
import { callerKey } from "../listeners/callers.ts";
import { staying, withNic } from "../pods/store/pod-plan.ts";
import { denialView } from "../policies/denials.ts";
import { serviceOf } from "../policies/service-of.ts";
import { guardCounts } from "../traffic/guard-counts.ts";
import type { Step } from "../trace/facts.ts";
import { destinationOf, gatherTrace } from "../trace/gather.ts";
import { liveTraceOf, traceLive } from "../trace/live.ts";
import { tracePath } from "../trace/path.ts";
import { podSender, type Sender } from "../trace/sender.ts";
import { note, type ServiceParts } from "./context.ts";

/** What becomes of a pod's packets: counters of those that were stopped, and the path of one. */
export const podPackets = (
  parts: ServiceParts,
): Pick<ServiceImpl<typeof PodService>, "guard" | "trace" | "traceLive"> => ({
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

  async trace({ idOrName, ...asked }) {
    const { plan } = parts.records.find(validatePodRef(idOrName));
    return tracedPath(parts, podSender(plan), asked);
  },

  async *traceLive({ idOrName, bounds, ...asked }, context) {
    const { plan } = parts.pods.withMachine(validatePodRef(idOrName));
    note(parts, context, `trace ${idOrName}`);
    yield* streamLiveTrace(parts, podSender(plan), asked, bounds, context);
  },
});

/** Where to a packet is traced. */
interface Asked {
  readonly destination: string;
  readonly port?: number | undefined;
  readonly protocol: string;
}

/** The computed path of a packet. */
export async function tracedPath(
  parts: ServiceParts,
  sender: Sender,
  { destination, port, protocol }: Asked,
): Promise<{ destination: string; steps: Step[]; verdict: string }> {
  const service = serviceOf(protocol, port);
  const to = destinationOf(destination, sender, parts);
  const { steps, verdict } = tracePath(
    { sender, ...to, ...service },
    await gatherTrace(parts, sender, to.ip),
  );
  return { destination: to.ip ?? destination, steps: [...steps], verdict };
}

/** The path of real packets, as the kernel reports it. Counts as a capture of the caller's. */
export async function* streamLiveTrace(
  parts: ServiceParts,
  sender: Sender,
  { destination, port, protocol }: Asked,
  bounds: LiveTraceBounds | undefined,
  context: HandlerContext,
): AsyncGenerator<TraceLiveResponse> {
  const ends = validateTraceBounds(bounds);
  const service = serviceOf(protocol, port);
  const to = destinationOf(destination, sender, parts);
  const live = liveTraceOf({ sender, ...to, ...service });
  using _place = context.values.get(callerKey)?.capture();
  const { link } = live.flow;
  try {
    for await (const packet of traceLive(parts, live, ends, context.signal))
      yield create(TraceLiveResponseSchema, {
        event:
          packet === undefined
            ? { case: "started", value: { destination: live.flow.destination, link } }
            : { case: "packet", value: { ...packet, rules: [...packet.rules] } },
      });
  } catch (thrown) {
    if (!context.signal.aborted) parts.log.warn({ err: thrown }, "A live trace failed");
    throw thrown;
  }
}
