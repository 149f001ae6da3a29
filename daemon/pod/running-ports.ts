import type { IfName } from "../../core/names.ts";
import type { PodFragment } from "../../network/desired.ts";
import type { RunningPort } from "../drift/parts.ts";
import type { LivePod } from "./live-pod.ts";
import { withNic } from "./pod-plan.ts";

/** A running pod's ports, by the names drift knows them by: a tap that is kept is somebody else's to look after. */
export function portsOfPod(live: LivePod): RunningPort[] {
  const { podId, name: podName, ports } = live.plan;
  const first = ports.ports.find(({ tap }) => portOfPod(live, tap) !== undefined)?.tap;
  return ports.ports.map(({ tap }) => ({
    podId,
    podName,
    tap,
    hasRules: ports.published !== undefined && tap === first,
  }));
}

/** One of them as it is to be, alone; undefined when its NIC is not plugged, or its guest has let go of it. */
export function portOfPod({ plan, plugged }: LivePod, tap: IfName): PodFragment | undefined {
  const of = withNic(plan.interfaces).find(({ nic }) => nic.tap === tap);
  if (of === undefined || !plugged.has(of.position)) return undefined;
  return { ...plan.ports, ports: plan.ports.ports.filter((port) => port.tap === tap) };
}
