import type { IfName } from "../../core/names.ts";
import type { PodFragment } from "../../network/desired.ts";
import type { RunningPort } from "../drift/parts.ts";
import type { LivePod } from "./live-pod.ts";
import { withNic } from "./pod-plan.ts";

/** A running pod's ports, by the names drift knows them by: a tap that is kept is somebody else's to look after. */
export const portsOfPod = ({ plan }: LivePod): RunningPort[] =>
  plan.ports.ports.map(({ tap }) => ({ podId: plan.podId, podName: plan.name, tap }));

/** One of them as it is to be, alone; undefined when its NIC is not plugged, or its guest has let go of it. */
export function portOfPod({ plan, plugged }: LivePod, tap: IfName): PodFragment | undefined {
  const of = withNic(plan.interfaces).find(({ nic }) => nic.tap === tap);
  if (of === undefined || !plugged.has(of.position)) return undefined;
  return { ...plan.ports, ports: plan.ports.ports.filter((port) => port.tap === tap) };
}
