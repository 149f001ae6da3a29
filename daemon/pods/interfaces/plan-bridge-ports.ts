import type { PodSpec, PortChoices } from "../../../api/pod-spec.ts";
import type { PortDesired } from "../../../network/model/desired.ts";
import { podMark } from "../../../network/model/ownership.ts";
import { type InterfacePlan, withNic } from "../store/pod-plan.ts";
import type { Snapshot } from "../plan/snapshot.ts";

/** The bridge ports of a new pod. */
export const portsOf = (
  spec: PodSpec,
  interfaces: readonly InterfacePlan[],
  snapshot: Snapshot,
): PortDesired[] =>
  interfaces.flatMap((each, i) => portOf(each, spec.interfaces[i]?.port, snapshot));

/** The bridge port of an interface; loopback has none, and a tap that is kept is none of podnet's. */
export function portOf(
  interfacePlan: InterfacePlan,
  choices: PortChoices = {},
  { podId, networks, links }: Pick<Snapshot, "podId" | "networks" | "links">,
): PortDesired[] {
  return withNic([interfacePlan]).flatMap(({ bridge, network: name, nic, ...each }) => {
    if (bridge === undefined) return [];
    const network = networks.find((known) => known.name === name);
    const { vlan, isolated = network?.isolated ?? false, learning } = choices;
    return {
      tap: nic.tap,
      bridge,
      guestMac: nic.mac,
      guestAddresses: each.addresses,
      alias: podMark(podId, each.position),
      isolated,
      // The bridge's, not the interface's: a port below the bridge's MTU would make it drop what others may send.
      mtu: network?.bridgeMtu ?? network?.mtu ?? links?.[bridge]?.mtu ?? each.mtu,
      ...(vlan === undefined ? {} : { vlan }),
      ...(learning === undefined ? {} : { learning }),
      ...(network === undefined ? { foreign: true as const } : {}),
    };
  });
}
