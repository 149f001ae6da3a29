import type { IfName } from "../../core/names.ts";
import type { PodFragment } from "../../network/desired.ts";
import type { RunningPort } from "../drift/parts.ts";
import type { LivePod } from "./live-pod.ts";

/** A running pod's ports, by the names drift knows them by. */
export const portsOfPod = ({ plan }: LivePod): RunningPort[] =>
  plan.interfaces.map(({ nic }) => ({ podId: plan.podId, podName: plan.name, tap: nic.tap }));

/** One of them as it is to be, alone; undefined when its NIC is not plugged, or its guest has let go of it. */
export function portOfPod({ plan, plugged }: LivePod, tap: IfName): PodFragment | undefined {
  const of = plan.interfaces.find(({ nic }) => nic.tap === tap);
  if (of === undefined || !plugged.has(of.position)) return undefined;
  return { ...plan.ports, ports: plan.ports.ports.filter((port) => port.tap === tap) };
}
