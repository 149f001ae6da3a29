import type { IfName } from "../../../core/names.ts";
import type { PodFragment } from "../../../network/model/desired.ts";
import type { JoinDesired } from "../../../network/tc-redirect/redirect.ts";
import type { RunningJoin, RunningPort } from "../../drift/parts.ts";
import type { NetworkDefinition } from "../../config/network-definition.ts";
import { joinOf } from "./act-sandboxes.ts";
import type { LivePod } from "../lifecycle/live-pod.ts";
import { portsOf } from "./pod-ports.ts";
import { withCni, withNic } from "../store/pod-plan.ts";

/** A running pod's ports, by the names that drift uses. A foreign tap is its owner's to repair. */
export function portsOfPod(live: LivePod): RunningPort[] {
  const { podId, name: podName } = live.plan;
  const fragment = portsOf(live.plan, []);
  const bearer = bearerOfRules(live, fragment);
  return fragment.ports.map(({ tap, ifb }) => ({
    podId,
    podName,
    tap,
    ...(ifb === undefined ? {} : { ifb }),
    hasRules: tap === bearer,
  }));
}

/**
 * The desired state of one port; undefined when its NIC is not plugged, or its guest has released
 * it. The rules of the pod's published ports are kept as long as the pod runs.
 */
export function portOfPod(
  live: LivePod,
  tap: IfName,
  networks: readonly NetworkDefinition[],
): PodFragment | undefined {
  const fragment = portsOf(live.plan, networks);
  const { published, ports } = fragment;
  if (isPlugged(live, tap)) return { ...fragment, ports: ports.filter((port) => port.tap === tap) };
  const bearsRules = published !== undefined && tap === bearerOfRules(live, fragment);
  return bearsRules ? { ...fragment, ports: [] } : undefined;
}

/**
 * The desired state of all ports of a pod that are plugged, with its rules; undefined when it has
 * neither. Rules, and the guard's elements, are looked at for all ports of a pod at once.
 */
export function rulesOfPod(
  live: LivePod,
  networks: readonly NetworkDefinition[],
): PodFragment | undefined {
  const fragment = portsOf(live.plan, networks);
  const ports = fragment.ports.filter(({ tap }) => isPlugged(live, tap));
  const some = ports.length > 0 || fragment.published !== undefined;
  return some ? { ...fragment, ports } : undefined;
}

/** The places that a running pod has in namespaces of CNI plugins. */
export const joinsOfPod = ({ plan }: LivePod): RunningJoin[] =>
  withCni(plan.interfaces).map(({ cni: { netns }, nic: { tap } }) => ({
    podId: plan.podId,
    podName: plan.name,
    tap,
    netns,
  }));

/** The desired state of one redirect; undefined when its NIC is not plugged. */
export function joinOfPod(live: LivePod, tap: IfName): JoinDesired | undefined {
  const found = withCni(live.plan.interfaces).find(({ nic }) => nic.tap === tap);
  return found !== undefined && isPlugged(live, tap) ? joinOf(found) : undefined;
}

/** The port with which a pod's rules are looked at. */
const bearerOfRules = (live: LivePod, { ports }: PodFragment): IfName | undefined => {
  const taps = ports.map(({ tap }) => tap);
  return taps.find((tap) => isPlugged(live, tap)) ?? taps[0];
};

const isPlugged = ({ plan, plugged }: LivePod, tap: IfName): boolean =>
  withNic(plan.interfaces).some(({ nic, position }) => nic.tap === tap && plugged.has(position));
